package dev.penstock.kernel.row;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.Predicate;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * The part of a join's ON that is not an equality: a Spark SQL expression over the columns of both sides. It is resolved
 * and optimised by Spark once, on the driver, and compiled in each task. NULL counts as false.
 */
public final class PairPredicate implements Serializable {
  private static final long serialVersionUID = 1L;

  private final Expression condition;
  private final Seq<Attribute> columns;
  private final int leftColumns;
  private final int rightColumns;
  private transient BasePredicate compiled;
  private transient JoinedRow joined;
  private transient UnsafeRow left;
  private transient UnsafeRow right;

  private PairPredicate(Expression condition, Seq<Attribute> columns, int leftColumns, int rightColumns) {
    this.condition = condition;
    this.columns = columns;
    this.leftColumns = leftColumns;
    this.rightColumns = rightColumns;
  }

  /** Resolves {@code sql}; throws Spark's analysis error if it does not match the columns or is not BOOLEAN. */
  public static PairPredicate of(SparkSession spark, String sql, StructType left, StructType right) {
    Resolved resolved = Resolved.of(spark, List.of(functions.expr(sql).cast("boolean")), left, right);
    return new PairPredicate(resolved.outputs().head(), resolved.columns(), left.size(), right.size());
  }

  /** Whether two packed rows match the condition. */
  public boolean test(byte[] leftRow, byte[] rightRow) {
    if (compiled == null) {
      compiled = Predicate.create(condition, columns);
      compiled.initialize(0);
      left = new UnsafeRow(leftColumns);
      right = new UnsafeRow(rightColumns);
      joined = new JoinedRow(left, right);
    }
    left.pointTo(leftRow, leftRow.length);
    right.pointTo(rightRow, rightRow.length);
    return compiled.eval(joined);
  }
}
