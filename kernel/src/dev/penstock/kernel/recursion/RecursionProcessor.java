package dev.penstock.kernel.recursion;

import dev.penstock.kernel.row.PackedRow;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;

/**
 * Iterates a recursion to its fixpoint within an epoch.
 *
 * <p>A row has a weight at each depth: the number of its derivations of that depth. At each depth it passes its worth to the next depth:
 * with UNION ALL that weight; with UNION one, at its smallest depth only. So the rows at a depth depend only on
 * the previous depth, and an epoch proceeds depth by depth over the rows that have changed there. A row in a cycle
 * that is no longer reachable loses its smallest depth; the lost contribution then returns to it as a loss at
 * greater depths, until nothing is left.
 */
final class RecursionProcessor extends StatefulProcessor<Integer, Row, Row> {
  private static final long serialVersionUID = 1L;

  private final RecursionStep step;
  private final boolean all;
  private final int maxDepth;
  private transient RecursionState state;
  /** Rows to process, by depth. */
  private transient TreeMap<Integer, Set<RecursionState.Derived>> waiting;

  RecursionProcessor(RecursionStep step, boolean all, int maxDepth) {
    this.step = step;
    this.all = all;
    this.maxDepth = maxDepth;
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    state = new RecursionState(getHandle());
  }

  @Override
  public scala.collection.Iterator<Row> handleInputRows(
      Integer one, scala.collection.Iterator<Row> rows, TimerValues timers) {
    try {
      return changes(rows);
    } catch (ArithmeticException e) {
      throw new IllegalStateException("[RECURSION_TOO_DEEP] a row has more derivations than can be counted", e);
    }
  }

  private scala.collection.Iterator<Row> changes(scala.collection.Iterator<Row> rows) {
    state.open();
    waiting = new TreeMap<>();
    Map<PackedRow, long[]> base = new LinkedHashMap<>();
    Map<PackedRow, long[]> other = new LinkedHashMap<>();
    while (rows.hasNext()) {
      Row row = rows.next();
      boolean isBase = row.getInt(Recursion.SIDE) == Recursion.BASE;
      byte[] key = isBase ? null : (byte[]) row.get(Recursion.KEY);
      (isBase ? base : other)
          .computeIfAbsent(new PackedRow((byte[]) row.get(Recursion.ROW), key, 0), k -> new long[1])[0] +=
          row.getLong(Recursion.WEIGHT);
    }
    // First the existing rows with the changes of the other collection, then the changed rows with all of it.
    other.forEach((row, sum) -> {
      if (sum[0] != 0) {
        for (RecursionState.Derived derived : state.rowsOf(row.beside())) {
          byte[] made = step.apply(derived.row, row.row(), () -> times(worth(derived.before), sum[0]));
          if (made != null) {
            derived.before.forEach((depth, weight) -> derive(made, depth + 1, times(worth(derived.before, depth), sum[0])));
          }
        }
        state.changeOther(row.beside(), row.row(), sum[0]);
      }
    });
    base.forEach((row, sum) -> derive(row.row(), 0, sum[0]));
    while (!waiting.isEmpty()) {
      Map.Entry<Integer, Set<RecursionState.Derived>> next = waiting.pollFirstEntry();
      for (RecursionState.Derived derived : next.getValue()) {
        handOn(derived, next.getKey());
      }
    }
    List<Row> out = new ArrayList<>();
    for (RecursionState.Derived derived : state.changed()) {
      long change = total(derived.weights) - total(derived.before);
      if (change != 0) {
        out.add(RowFactory.create(derived.row, null, change));
      }
    }
    state.flush(row -> step.tried(() -> step.key(row), row, null, () -> 0));
    waiting = null;
    return scala.jdk.javaapi.CollectionConverters.asScala(out.iterator());
  }

  /** Adds derivations of a row at a depth, and queues it there and at every other depth where its worth may change. */
  private void derive(byte[] row, int depth, long weight) {
    if (weight == 0) {
      return;
    }
    if (depth > maxDepth) {
      throw new IllegalStateException("[RECURSION_TOO_DEEP] the recursion goes deeper than " + maxDepth + " steps");
    }
    RecursionState.Derived derived = state.row(row);
    derived.add(depth, weight);
    look(derived, depth);
    if (!all) {
      derived.weights.tailMap(depth, false).keySet().forEach(d -> look(derived, d));
      derived.before.tailMap(depth, false).keySet().forEach(d -> look(derived, d));
    }
  }

  private void look(RecursionState.Derived derived, int depth) {
    waiting.computeIfAbsent(depth, d -> new LinkedHashSet<>()).add(derived);
  }

  private void handOn(RecursionState.Derived derived, int depth) {
    long change = worth(derived.weights, depth) - worth(derived.before, depth);
    if (change == 0) {
      return;
    }
    byte[] key = step.tried(() -> derived.key(step::key), derived.row, null, () -> change);
    if (key == null) {
      return;
    }
    for (Map.Entry<PackedRow, long[]> other : state.othersOf(key).entrySet()) {
      byte[] made = step.apply(derived.row, other.getKey().row(), () -> times(change, other.getValue()[0]));
      if (made != null) {
        derive(made, depth + 1, times(change, other.getValue()[0]));
      }
    }
  }

  /** The total worth that a row passes on, over all depths. */
  private long worth(TreeMap<Integer, Long> weights) {
    long sum = 0;
    for (int depth : weights.keySet()) {
      sum = Math.addExact(sum, worth(weights, depth));
    }
    return sum;
  }

  /** The worth that a row passes on at a depth. */
  private long worth(TreeMap<Integer, Long> weights, int depth) {
    long weight = weights.getOrDefault(depth, 0L);
    if (all) {
      return weight;
    }
    if (weight <= 0) {
      return 0;
    }
    for (long above : weights.headMap(depth).values()) {
      if (above > 0) {
        return 0;
      }
    }
    return 1;
  }

  private long total(TreeMap<Integer, Long> weights) {
    long sum = 0;
    for (long weight : weights.values()) {
      sum = Math.addExact(sum, weight);
    }
    return all ? sum : sum > 0 ? 1 : 0;
  }

  private static long times(long a, long b) {
    return Math.multiplyExact(a, b);
  }
}
