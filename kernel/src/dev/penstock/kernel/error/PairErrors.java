package dev.penstock.kernel.error;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Reports packed rows for which an operator cannot compute an expression: pairs of a left and a right row, or left rows alone.
 *
 * <p>Spec: {@code channel}, {@code query}, {@code names}, as of an {@link Attempt}.
 */
public final class PairErrors implements Serializable {
  private static final long serialVersionUID = 1L;

  private final Attempt attempt;
  private final RowText alone;
  private final RowText both;
  private final int leftColumns;
  private final int rightColumns;

  private PairErrors(Attempt attempt, StructType left, StructType right) {
    this.attempt = attempt;
    StructType all = left;
    for (StructField field : right.fields()) {
      all = all.add(field);
    }
    alone = new RowText(left, attempt.names);
    both = new RowText(all, attempt.names);
    leftColumns = left.size();
    rightColumns = right.size();
  }

  /** The reporter of an operator over rows of these columns; null if the spec is null, because no row can fail. */
  public static PairErrors of(JsonNode spec, StructType left, StructType right) {
    return spec == null || spec.isNull() || spec.isMissingNode() ? null : new PairErrors(new Attempt(spec), left, right);
  }

  /** Reports an expression that has failed for a pair of rows; {@code right} is null if it only uses the left row. */
  public void report(String expression, Exception error, byte[] left, byte[] right, long weight) {
    String told = ErrorText.of(error);
    if (attempt.reports()) {
      InternalRow row = row(left, leftColumns);
      String text = right == null ? alone.of(row) : both.of(new JoinedRow(row, row(right, rightColumns)));
      attempt.report(expression, told, text, weight);
    }
  }

  private static InternalRow row(byte[] bytes, int columns) {
    UnsafeRow row = new UnsafeRow(columns);
    row.pointTo(bytes, bytes.length);
    return row;
  }
}
