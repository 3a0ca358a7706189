package dev.penstock.kernel.join;

import dev.penstock.kernel.row.Pack;
import java.util.Arrays;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;

/**
 * The answers that left rows got from a join that answers each of them once. Where left rows can be retracted each is kept with its
 * answer, because what is taken back must be what was given, whatever the right side holds by then.
 */
final class JoinAnswers {
  private final boolean inner;
  /** Left rows with the answer each got, by hash; null where left rows stay. */
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

  /** Answers a left row; {@code match} is null where nothing was found. */
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

  /** Takes back the answers of a left row that is retracted, the latest first. */
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
