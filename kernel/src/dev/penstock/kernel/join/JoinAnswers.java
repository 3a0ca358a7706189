package dev.penstock.kernel.join;

import dev.penstock.kernel.row.Pack;
import java.util.Arrays;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;

/**
 * The answers to left rows, in a join that answers each once. If left rows can be retracted, each is stored with its
 * answer, because the retraction must equal that answer even if the right side has changed.
 */
final class JoinAnswers {
  private final boolean inner;
  /** Left rows with their answers, by hash; null if left rows are never retracted. */
  private final JoinStore given;

  JoinAnswers(StatefulProcessorHandle handle, boolean inner, boolean leftRetracts) {
    this.inner = inner;
    this.given = leftRetracts ? new JoinStore(handle, "answered") : null;
  }

  void open() {
    if (given != null) {
      given.open();
    }
  }

  void flush() {
    if (given != null) {
      given.flush();
    }
  }

  /** Answers a left row; {@code match} is null if there is no match. */
  void give(byte[] row, long weight, byte[] match, JoinOutput out) {
    if (match != null || !inner) {
      out.add(row, match, weight);
    }
    if (given == null) {
      return;
    }
    long hash = Pack.hash(row);
    for (JoinStore.Cursor cursor = given.from(hash); ; cursor.next()) {
      JoinStore.Entry entry = cursor.get();
      if (entry == null || entry.at != hash) {
        break;
      }
      if (Arrays.equals(entry.row, row) && Arrays.equals(entry.beside, match)) {
        cursor.add(weight);
        return;
      }
    }
    JoinStore.Entry entry = new JoinStore.Entry(hash, row, weight);
    entry.beside = match;
    given.put(entry);
  }

  /** Retracts the answers to a retracted left row, the latest first. */
  void takeBack(byte[] row, long weight, JoinOutput out) {
    long left = weight;
    long hash = Pack.hash(row);
    JoinStore.Cursor cursor = given.after(hash);
    while (left > 0) {
      JoinStore.Entry entry = cursor.previous();
      if (entry == null || entry.at != hash) {
        return;
      }
      if (Arrays.equals(entry.row, row)) {
        long taken = Math.min(left, entry.weight);
        if (entry.beside != null || !inner) {
          out.add(row, entry.beside, -taken);
        }
        cursor.add(-taken);
        left -= taken;
      }
    }
  }
}
