package dev.penstock.kernel.join;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;

/**
 * Each left row with the row that a keyed right side holds for its key when the left row arrives.
 *
 * <ul>
 *   <li>Result: one row per left row; without a match, NULLs ({@code left}) or nothing ({@code inner}). An emitted
 *       answer never changes. Retracting a left row retracts its answers, the latest first.
 *   <li>Arrival: {@code leftTime} and {@code rightTime} number the commits. Both sides are processed in that order, the right side first
 *       within a commit, so the answer does not depend on which commits share an epoch.
 *   <li>Keys: a key has at most one right row after a commit; of several the last to arrive would count. NULL matches nothing.
 *   <li>State: the right rows; with {@code leftWeight} the left rows with their answers.
 *   <li>Ordering: none.
 * </ul>
 *
 * <p>Spec: {@code kind} (inner, left), {@code leftKeys}, {@code rightKeys}, {@code leftColumns}, {@code rightColumns},
 * {@code leftTime}, {@code rightTime}, {@code leftWeight}, {@code rightWeight}.
 */
public final class LookupJoin {
  private LookupJoin() {}

  /** Joins two frames. Output: left columns, right columns, {@code __weight}. */
  public static Dataset<Row> apply(Dataset<Row> left, Dataset<Row> right, String specJson) {
    JoinSpec spec = new JoinSpec(specJson);
    boolean inner = spec.oneOf("kind", "inner", "left").equals("inner");
    String leftTime = spec.text("leftTime");
    String rightTime = spec.text("rightTime");
    spec.done();
    boolean[] nullSafe = new boolean[spec.leftKeys.size()];
    Dataset<Row> packed = JoinPlan.run(
        spec,
        JoinPlan.side(spec, left, JoinPlan.LEFT, spec.leftKeys, nullSafe, spec.leftColumns, leftTime, spec.leftWeight, !inner,
            false, List.of()),
        JoinPlan.side(spec, right, JoinPlan.RIGHT, spec.rightKeys, nullSafe, spec.rightColumns, rightTime, spec.rightWeight,
            false, true, List.of()),
        new Processor(inner, spec.leftWeight != null),
        TimeMode.None(),
        JoinPlan.OUTPUT);
    return JoinPlan.unpack(
        packed, JoinPlan.schema(left, spec.leftColumns), JoinPlan.schema(right, spec.rightColumns));
  }

  private static final class Processor extends StatefulProcessor<byte[], Row, Row> {
    private static final long serialVersionUID = 1L;

    /** By commit; within one commit the right side, then retractions of the left side, then its insertions. */
    private static final Comparator<Row> ARRIVAL = Comparator.<Row>comparingLong(r -> r.getLong(JoinPlan.TIME))
        .thenComparing(Comparator.<Row>comparingInt(r -> r.getInt(JoinPlan.SIDE)).reversed())
        .thenComparingLong(r -> Long.signum(r.getLong(JoinPlan.WEIGHT)));

    private final boolean inner;
    private final boolean leftRetracts;
    private transient JoinHistory right;
    private transient JoinAnswers answers;

    Processor(boolean inner, boolean leftRetracts) {
      this.inner = inner;
      this.leftRetracts = leftRetracts;
    }

    @Override
    public void init(OutputMode outputMode, TimeMode timeMode) {
      right = new JoinHistory(getHandle(), true);
      answers = new JoinAnswers(getHandle(), inner, leftRetracts);
    }

    @Override
    public scala.collection.Iterator<Row> handleInputRows(
        byte[] key, scala.collection.Iterator<Row> rows, TimerValues timers) {
      JoinOutput out = new JoinOutput(leftRetracts, false);
      List<Row> arrived = new ArrayList<>();
      while (rows.hasNext()) {
        Row row = rows.next();
        if (row.getInt(JoinPlan.SIDE) > JoinPlan.RIGHT) {
          out.add((byte[]) row.get(JoinPlan.ROW), null, row.getLong(JoinPlan.WEIGHT));
        } else {
          arrived.add(row);
        }
      }
      if (arrived.isEmpty()) {
        return out.iterator();
      }
      arrived.sort(ARRIVAL);
      right.store().open();
      answers.open();
      List<Row> changes = new ArrayList<>();
      for (Row row : arrived) {
        if (row.getInt(JoinPlan.SIDE) == JoinPlan.RIGHT) {
          if (!changes.isEmpty() && changes.get(0).getLong(JoinPlan.TIME) != row.getLong(JoinPlan.TIME)) {
            take(changes);
          }
          changes.add(row);
        } else {
          take(changes);
          left(row, out);
        }
      }
      take(changes);
      right.store().flush();
      answers.flush();
      return out.iterator();
    }

    private void take(List<Row> changes) {
      if (!changes.isEmpty()) {
        right.take(changes, 0L);
        changes.clear();
      }
    }

    private void left(Row row, JoinOutput out) {
      byte[] bytes = (byte[]) row.get(JoinPlan.ROW);
      long weight = row.getLong(JoinPlan.WEIGHT);
      if (weight > 0) {
        JoinStore.Entry found = right.before(0, true);
        answers.give(bytes, weight, found == null ? null : found.row, out);
      } else if (weight < 0) {
        answers.takeBack(bytes, -weight, out);
      }
    }
  }
}
