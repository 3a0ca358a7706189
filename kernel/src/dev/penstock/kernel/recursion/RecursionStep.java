package dev.penstock.kernel.recursion;

import dev.penstock.kernel.row.PairPredicate;
import dev.penstock.kernel.row.RowFunction;
import dev.penstock.kernel.row.Unpack;
import java.io.Serializable;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/** What one step of a recursion makes of a row and a row of the other collection. */
final class RecursionStep implements Serializable {
  private static final long serialVersionUID = 1L;

  private final RowFunction key;
  private final int keyColumns;
  private final RowFunction output;
  private final PairPredicate condition;

  RecursionStep(RowFunction key, int keyColumns, RowFunction output, PairPredicate condition) {
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
  byte[] apply(byte[] row, byte[] other) {
    return condition != null && !condition.test(row, other) ? null : output.apply(row, other);
  }
}
