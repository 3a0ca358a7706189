package dev.penstock.kernel.recursion;

import dev.penstock.kernel.error.PairErrors;
import dev.penstock.kernel.row.PairPredicate;
import dev.penstock.kernel.row.RowFunction;
import dev.penstock.kernel.row.Unpack;
import java.io.Serializable;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * What one step of a recursion makes of a row and a row of the other collection. Where it cannot be computed it makes nothing, and what it
 * was made of is reported with the weight that the result would have had.
 */
final class RecursionStep implements Serializable {
  private static final long serialVersionUID = 1L;

  private final RowFunction key;
  private final int keyColumns;
  private final RowFunction output;
  private final PairPredicate condition;
  private final PairErrors errors;
  private final String text;

  /**
   * @param errors null if the step can always be computed
   * @param text the step's expressions as users know them
   */
  RecursionStep(
      RowFunction key, int keyColumns, RowFunction output, PairPredicate condition, PairErrors errors, String text) {
    this.errors = errors;
    this.text = text;
    this.key = key;
    this.keyColumns = keyColumns;
    this.output = output;
    this.condition = condition;
  }

  /** The key by which a row finds rows of the other collection; null if it can find none. */
  byte[] key(byte[] row) {
    byte[] bytes = key.apply(row, null);
    UnsafeRow values = Unpack.row(bytes, keyColumns);
    return values.anyNull() ? null : bytes;
  }

  /** The row that is made of two that have the same key; null if they do not fulfil the condition. */
  byte[] apply(byte[] row, byte[] other, LongSupplier weight) {
    return tried(() -> made(row, other), row, other, weight);
  }

  /** What is made of rows; null, and a report with a weight, if it cannot be computed. */
  byte[] tried(Supplier<byte[]> made, byte[] row, byte[] other, LongSupplier weight) {
    if (errors == null) {
      return made.get();
    }
    try {
      return made.get();
    } catch (Exception e) {
      errors.report(text, e, row, other, weight.getAsLong());
      return null;
    }
  }

  private byte[] made(byte[] row, byte[] other) {
    return condition != null && !condition.test(row, other) ? null : output.apply(row, other);
  }
}
