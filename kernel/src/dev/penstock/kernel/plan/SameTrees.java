package dev.penstock.kernel.plan;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Objects;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import scala.Option;
import scala.Product;
import scala.collection.Iterator;

/**
 * Checks that Spark's parser gives the same tree for an expression as written and as regenerated. Function names are compared ignoring case.
 */
public final class SameTrees {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final String original;
  private int offset;

  private SameTrees(String original) {
    this.original = original;
  }

  /**
   * The first difference in a JSON array of texts, in which each original is followed by its copy: the number of the pair, the offset of the difference in the
   * original and, if Spark cannot parse the original, its message; null if there is none.
   */
  public static Object[] difference(SparkSession spark, String json) throws java.io.IOException {
    String[] texts = JSON.readValue(json, String[].class);
    ParserInterface parser = ((org.apache.spark.sql.classic.SparkSession) spark).sessionState().sqlParser();
    for (int i = 0; i < texts.length; i += 2) {
      SameTrees pair = new SameTrees(texts[i]);
      String problem = pair.compare(parser, texts[i + 1]);
      if (problem != null) return new Object[] {i / 2, pair.offset, problem};
    }
    return null;
  }

  /** Null if the trees are the same; "" if they differ; the message if the original is not Spark SQL. */
  private String compare(ParserInterface parser, String copy) {
    Expression written;
    try {
      written = parser.parseExpression(original);
    } catch (Exception error) {
      if (!(error instanceof ParseException parse)) throw new IllegalStateException(error);
      offset = start(parse);
      return Objects.toString(parse.getMessage(), "");
    }
    try {
      return same(written, parser.parseExpression(copy)) ? null : "";
    } catch (Exception error) {
      return "";
    }
  }

  /** The offset of an error, which Spark reports by line and column. */
  private int start(ParseException error) {
    Option<Object> line = error.start().line();
    Option<Object> column = error.start().startPosition();
    int at = 0;
    for (int left = line.isDefined() ? (Integer) line.get() : 1; left > 1 && at >= 0; left--) {
      at = original.indexOf('\n', at) + 1;
    }
    return Math.min(original.length(), at + (column.isDefined() ? (Integer) column.get() : 0));
  }

  private boolean same(Object a, Object b) {
    if (a instanceof ExprId && b instanceof ExprId) return true;
    if (a instanceof byte[] left && b instanceof byte[] right) return java.util.Arrays.equals(left, right);
    if (a instanceof scala.collection.Iterable<?> left && b instanceof scala.collection.Iterable<?> right) {
      return all(left.iterator(), right.iterator());
    }
    if (a instanceof Product left && b instanceof Product right) {
      boolean equal = a.getClass() == b.getClass() && fields(left, right);
      if (!equal && offset == 0 && a instanceof TreeNode<?> node && node.origin().startIndex().isDefined()) {
        offset = (Integer) node.origin().startIndex().get();
      }
      return equal;
    }
    return Objects.equals(a, b);
  }

  private boolean fields(Product a, Product b) {
    if (a.productArity() != b.productArity()) return false;
    for (int i = 0; i < a.productArity(); i++) {
      boolean name = i == 0 && a instanceof UnresolvedFunction;
      Object left = a.productElement(i);
      Object right = b.productElement(i);
      if (name ? !left.toString().equalsIgnoreCase(right.toString()) : !same(left, right)) return false;
    }
    return true;
  }

  private boolean all(Iterator<?> a, Iterator<?> b) {
    while (a.hasNext() && b.hasNext()) {
      if (!same(a.next(), b.next())) return false;
    }
    return !a.hasNext() && !b.hasNext();
  }
}
