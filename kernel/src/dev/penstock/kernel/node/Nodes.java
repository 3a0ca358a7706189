package dev.penstock.kernel.node;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.AttributeSet$;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.UnixMicros;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Helpers to build and inspect Spark's plans from Java. */
public final class Nodes {
  private Nodes() {}

  public static <T> Seq<T> list(List<? extends T> values) {
    return CollectionConverters.asScala(new ArrayList<T>(values)).toSeq();
  }

  /** The plan of a frame. */
  public static LogicalPlan plan(Dataset<Row> frame) {
    return ((org.apache.spark.sql.classic.Dataset<Row>) frame).logicalPlan();
  }

  /** New columns with these names and types. */
  public static Seq<Attribute> columns(StructType schema) {
    List<Attribute> out = new ArrayList<>();
    for (StructField field : schema.fields()) {
      out.add(DataTypeUtils.toAttribute(field));
    }
    return list(out);
  }

  /** The expression with its columns bound to ordinals of {@code input}. */
  public static Expression bound(Expression e, List<? extends Attribute> input) {
    if (e instanceof Attribute wanted) {
      for (int i = 0; i < input.size(); i++) {
        if (input.get(i).exprId().equals(wanted.exprId())) {
          return new BoundReference(i, input.get(i).dataType(), input.get(i).nullable());
        }
      }
      throw new IllegalStateException("no column " + wanted + " in " + input);
    }
    return (Expression) e.mapChildren(child -> bound((Expression) child, input));
  }

  /** The expression with its columns replaced by the expressions that compute them. */
  public static Expression replaced(Expression e, Map<ExprId, Expression> made) {
    Expression value = e instanceof Attribute column ? made.get(column.exprId()) : null;
    if (value != null) {
      return value instanceof Alias alias ? alias.child() : value;
    }
    return made.isEmpty() ? e : (Expression) e.mapChildren(child -> replaced((Expression) child, made));
  }

  /** Whether a column costs nothing and cannot fail: a column, a literal, or the microseconds of a timestamp, which are its internal form. */
  public static boolean isFree(Expression column) {
    Expression e = column instanceof Alias alias ? alias.child() : column;
    e = e instanceof UnixMicros micros ? micros.child() : e;
    return e instanceof Attribute || e instanceof Literal;
  }

  /** The output columns that are not the child's. */
  static AttributeSet produced(Seq<Attribute> output, AttributeSet child) {
    List<Expression> own = new ArrayList<>(CollectionConverters.asJava(output));
    own.removeIf(a -> child.contains((Attribute) a));
    return AttributeSet$.MODULE$.apply(CollectionConverters.asScala(own));
  }
}
