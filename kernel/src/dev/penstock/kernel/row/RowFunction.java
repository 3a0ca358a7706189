package dev.penstock.kernel.row;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * Columns computed from two packed rows, as a packed row. The expressions are resolved and optimised by Spark once, on the
 * driver, and compiled in each task.
 */
public final class RowFunction implements Serializable {
  private static final long serialVersionUID = 1L;

  private final Seq<Expression> outputs;
  private final Seq<Attribute> columns;
  private final int leftColumns;
  private final int rightColumns;
  private transient UnsafeProjection compiled;
  private transient JoinedRow joined;
  private transient UnsafeRow left;
  private transient UnsafeRow right;

  private RowFunction(Seq<Expression> outputs, Seq<Attribute> columns, int leftColumns, int rightColumns) {
    this.outputs = outputs;
    this.columns = columns;
    this.leftColumns = leftColumns;
    this.rightColumns = rightColumns;
  }

  /** Resolves {@code outputs}; throws Spark's analysis error if they do not match the columns. */
  public static RowFunction of(SparkSession spark, List<Column> outputs, StructType left, StructType right) {
    Resolved resolved = Resolved.of(spark, outputs, left, right);
    return new RowFunction(resolved.outputs(), resolved.columns(), left.size(), right.size());
  }

  /** The packed result for two packed rows; {@code rightRow} may be null if the outputs do not use the right side. */
  public byte[] apply(byte[] leftRow, byte[] rightRow) {
    if (compiled == null) {
      compiled = UnsafeProjection.create(outputs, columns);
      compiled.initialize(0);
      left = new UnsafeRow(leftColumns);
      right = new UnsafeRow(rightColumns);
      joined = new JoinedRow(left, right);
    }
    left.pointTo(leftRow, leftRow.length);
    if (rightRow != null) {
      right.pointTo(rightRow, rightRow.length);
    }
    return compiled.apply(joined).getBytes().clone();
  }
}
