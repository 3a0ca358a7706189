package dev.penstock.kernel.join;

import dev.penstock.kernel.row.PackedRow;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;

/**
 * The right side of a join that looks rows up by time: all rows of each key, by time. Of rows with the same
 * time the last to arrive counts; within an epoch, arrival order is the order of reading.
 *
 * <p>If the right side cannot retract, a row is replaced by the next one with the same time.
 */
final class JoinHistory {
  private final boolean retracts;
  private final JoinStore store;

  JoinHistory(StatefulProcessorHandle handle, boolean retracts) {
    this.retracts = retracts;
    this.store = new JoinStore(handle, "right");
  }

  JoinStore store() {
    return store;
  }

  private static final class Arrival {
    final byte[] row;
    final long at;
    long sequence;
    long weight;

    Arrival(byte[] row, long at, long sequence) {
      this.row = row;
      this.at = at;
      this.sequence = sequence;
    }
  }

  /** Adds an epoch's rows of the right side. */
  void take(List<Row> rows) {
    take(rows, null);
  }

  /** Adds rows of the right side: all at one time or, with {@code all} null, each at its own. */
  void take(List<Row> rows, Long all) {
    List<Arrival> arrivals = new ArrayList<>(rows.size());
    if (retracts) {
      Map<PackedRow, Arrival> sums = new LinkedHashMap<>();
      for (Row row : rows) {
        byte[] bytes = (byte[]) row.get(JoinPlan.ROW);
        long at = all != null ? all : row.getLong(JoinPlan.TIME);
        Arrival sum = sums.computeIfAbsent(PackedRow.of(bytes, at), key -> new Arrival(bytes, key.at(), 0));
        long weight = row.getLong(JoinPlan.WEIGHT);
        sum.weight += weight;
        if (weight > 0) {
          sum.sequence = Math.max(sum.sequence, row.getLong(JoinPlan.SEQUENCE));
        }
      }
      arrivals.addAll(sums.values());
    } else {
      for (Row row : rows) {
        arrivals.add(new Arrival(
            (byte[]) row.get(JoinPlan.ROW), all != null ? all : row.getLong(JoinPlan.TIME),
            row.getLong(JoinPlan.SEQUENCE)));
      }
    }
    arrivals.sort(Comparator.<Arrival>comparingLong(a -> a.at).thenComparingLong(a -> a.sequence));
    for (Arrival arrival : arrivals) {
      if (retracts) {
        change(arrival);
      } else {
        if (!store.isEmpty() && store.lastAt() >= arrival.at) {
          JoinStore.Cursor same = store.from(arrival.at);
          if (same.get() != null && same.get().at == arrival.at) {
            same.remove();
          }
        }
        store.put(new JoinStore.Entry(arrival.at, arrival.row, 1));
      }
    }
  }

  private void change(Arrival arrival) {
    if (arrival.weight == 0) {
      return;
    }
    JoinStore.Cursor known = store.find(arrival.at, arrival.row);
    if (known == null) {
      // An unknown row cannot be retracted.
      if (arrival.weight > 0) {
        store.put(new JoinStore.Entry(arrival.at, arrival.row, arrival.weight));
      }
    } else if (arrival.weight < 0) {
      known.add(Math.max(arrival.weight, -known.get().weight));
    } else {
      // It has arrived again, so it is now the last of its time.
      long weight = known.get().weight + arrival.weight;
      known.remove();
      store.put(new JoinStore.Entry(arrival.at, arrival.row, weight));
    }
  }

  /** The row that counts at ({@code inclusive}) or before a time, or null. */
  JoinStore.Entry before(long at, boolean inclusive) {
    return store.last(at, inclusive);
  }

  /** The row that counts at ({@code inclusive}) or after a time, or null. */
  JoinStore.Entry after(long at, boolean inclusive) {
    JoinStore.Entry first = (inclusive ? store.from(at) : store.after(at)).get();
    return first == null || !retracts ? first : store.last(first.at, true);
  }

  /** Whether rows may be evicted. They may not if rows can be retracted, because that may expose any earlier row. */
  boolean evicts() {
    return !retracts;
  }

  /** Evicts rows that no lookup at {@code at} or later needs, if lookups go back at most {@code reach} ({@link JoinTimer#NEVER}: without limit). */
  void evict(long at, boolean inclusive, long reach) {
    if (retracts || store.isEmpty() || store.firstAt() >= at) {
      return;
    }
    JoinStore.Entry needed = before(at, inclusive);
    if (needed != null) {
      long horizon = reach == JoinTimer.NEVER ? Long.MIN_VALUE : JoinTimer.plus(at, -reach);
      store.removeBefore(Math.max(needed.at, horizon), null);
    }
  }
}
