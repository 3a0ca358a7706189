package dev.penstock.kernel.join;

import dev.penstock.kernel.row.PackedRow;
import dev.penstock.kernel.state.Moment;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.types.StructType;

/**
 * Each left row with the one right row of its key that is closest in time.
 *
 * <ul>
 *   <li>Result: one row per left row; without a match, NULLs ({@code left}) or nothing ({@code inner}). An emitted
 *       answer never changes. Retracting a left row retracts its answers, the latest first.
 *   <li>Directions: {@code backward} the last right time ≤ left time ({@code strict}: &lt;), {@code forward} the first ≥
 *       (&gt;), {@code nearest} the smaller distance. {@code toleranceMicros} is the largest distance that counts.
 *   <li>Ties: {@code nearest} takes the earlier of two at the same distance; of right rows with the same time the last
 *       to arrive counts.
 *   <li>NULLs: a NULL key or time matches nothing; such a left row is answered immediately.
 *   <li>{@code eager}: answered on arrival with the right rows of this and earlier epochs. State: the right rows, for ever.
 *   <li>{@code watermark}: answered in the epoch after which no future right row can change the answer; future right rows have times ≥ the watermark.
 *       Backward: watermark &gt; left time (≥ when strict). Forward: watermark &gt; the candidate's time. Nearest: watermark &gt; left
 *       time + the candidate's distance. Without a candidate forward and nearest wait until watermark &gt; left time + tolerance; without
 *       a tolerance, until there is one. State: waiting left rows, and the right rows that they or left rows with times ≥ the watermark
 *       may need: looking backward, for each key the last one at or before the watermark and those after.
 *   <li>Late rows: a late left row is answered immediately from the rows still in the state. A late right row counts for left rows that are
 *       not answered yet. Both depend on the watermark in force when the row arrived or, if a side is the output of an
 *       operator below, which has no commits, on that of the epoch.
 *   <li>Retractions: the state has all of a right side that can retract ({@code rightWeight}), and all rows of a left side that can
 *       ({@code leftWeight}), with their answers.
 *   <li>Ordering: none.
 * </ul>
 *
 * <p>Spec: {@code kind}, {@code leftKeys}, {@code rightKeys}, {@code leftColumns}, {@code rightColumns}, {@code leftTime},
 * {@code rightTime} (BIGINT microseconds), {@code direction}, {@code strict}, {@code toleranceMicros}, {@code mode},
 * {@code leftWeight}, {@code rightWeight}, {@code leftMoment}, {@code rightMoment} (the two columns of a {@link Moment}).
 */
public final class AsofJoin {
  private AsofJoin() {}

  enum Direction {
    BACKWARD,
    FORWARD,
    NEAREST
  }

  /** Joins two frames. Output: left columns, right columns, {@code __weight}. */
  public static Dataset<Row> apply(Dataset<Row> left, Dataset<Row> right, String specJson) {
    JoinSpec spec = new JoinSpec(specJson);
    Direction direction =
        Direction.valueOf(spec.oneOf("direction", "backward", "forward", "nearest").toUpperCase());
    boolean strict = spec.flag("strict");
    Long tolerance = spec.number("toleranceMicros");
    if (tolerance != null && tolerance < 0) {
      throw new IllegalArgumentException("toleranceMicros must not be negative");
    }
    return join(left, right, spec, direction, strict, tolerance == null ? JoinTimer.NEVER : tolerance);
  }

  static Dataset<Row> join(
      Dataset<Row> left, Dataset<Row> right, JoinSpec spec, Direction direction, boolean strict, long tolerance) {
    boolean inner = spec.oneOf("kind", "inner", "left").equals("inner");
    boolean eager = spec.oneOf("mode", "eager", "watermark").equals("eager");
    String leftTime = spec.text("leftTime");
    String rightTime = spec.text("rightTime");
    spec.done();
    boolean[] nullSafe = new boolean[spec.leftKeys.size()];
    Dataset<Row> packed = JoinPlan.run(
        spec,
        JoinPlan.side(spec, left, JoinPlan.LEFT, spec.leftKeys, nullSafe, spec.leftColumns, leftTime, spec.leftWeight, !inner,
            false, spec.moments ? spec.leftMoment : List.of()),
        JoinPlan.side(spec, right, JoinPlan.RIGHT, spec.rightKeys, nullSafe, spec.rightColumns, rightTime, spec.rightWeight,
            false, true, spec.moments ? spec.rightMoment : List.of()),
        new Processor(
            inner, eager, direction, strict, tolerance, spec.leftWeight != null, spec.rightWeight != null, spec.moments),
        eager ? TimeMode.None() : TimeMode.EventTime(),
        JoinPlan.output(spec));
    return JoinPlan.unpack(
        packed, JoinPlan.schema(left, spec.leftColumns), JoinPlan.schema(right, spec.rightColumns),
        JoinPlan.more(spec));
  }

  private static final class Processor extends StatefulProcessor<byte[], Row, Row> {
    private static final long serialVersionUID = 1L;

    private final boolean inner;
    private final boolean eager;
    private final Direction direction;
    private final boolean strict;
    private final long tolerance;
    private final boolean leftRetracts;
    private final boolean rightRetracts;
    private final boolean moments;
    private transient JoinHistory right;
    /** Pending left rows, by time. */
    private transient JoinStore waiting;
    private transient JoinAnswers answers;

    Processor(
        boolean inner, boolean eager, Direction direction, boolean strict, long tolerance, boolean leftRetracts,
        boolean rightRetracts, boolean moments) {
      this.moments = moments;
      this.inner = inner;
      this.eager = eager;
      this.direction = direction;
      this.strict = strict;
      this.tolerance = tolerance;
      this.leftRetracts = leftRetracts;
      this.rightRetracts = rightRetracts;
    }

    @Override
    public void init(OutputMode outputMode, TimeMode timeMode) {
      right = new JoinHistory(getHandle(), rightRetracts);
      if (!eager) {
        waiting = new JoinStore(getHandle(), "waiting");
      }
      answers = new JoinAnswers(getHandle(), inner, leftRetracts);
    }

    @Override
    public scala.collection.Iterator<Row> handleInputRows(
        byte[] key, scala.collection.Iterator<Row> rows, TimerValues timers) {
      // Left rows of an append-only side cannot cancel each other, so equal output rows need not be merged.
      JoinOutput out = new JoinOutput(leftRetracts, false, moments);
      TreeMap<Moment, JoinCommit> commits = new TreeMap<>();
      JoinCommit onTime = null;
      while (rows.hasNext()) {
        Row row = rows.next();
        Moment moment = JoinPlan.moment(row);
        JoinCommit commit = moment == Moment.ON_TIME ? onTime : null;
        if (commit == null && row.getInt(JoinPlan.SIDE) <= JoinPlan.RIGHT) {
          commit = commits.computeIfAbsent(moment, m -> new JoinCommit());
          onTime = moment == Moment.ON_TIME ? commit : onTime;
        }
        switch (row.getInt(JoinPlan.SIDE)) {
          case JoinPlan.LEFT -> commit.lefts.add(row);
          case JoinPlan.RIGHT -> commit.rights.add(row);
          default -> {
            out.at(moment);
            out.add((byte[]) row.get(JoinPlan.ROW), null, row.getLong(JoinPlan.WEIGHT));
          }
        }
      }
      if (commits.isEmpty()) {
        return out.iterator();
      }
      open();
      long inForce = eager ? JoinTimer.UNKNOWN : JoinTimer.watermark(timers);
      commits.forEach((moment, commit) -> {
        boolean behind = moment != Moment.ON_TIME;
        long watermark = behind ? Math.max(inForce, Math.multiplyExact(moment.watermark(), 1000L)) : inForce;
        out.at(Moment.ON_TIME);
        if (behind) {
          // Everything due was answered and evicted before these rows arrived.
          advance(watermark, out);
        }
        take(commit, out);
        if (behind) {
          out.at(moment);
          advance(watermark, out);
        }
      });
      out.at(Moment.ON_TIME);
      // All rows before the watermark that this epoch reaches have arrived; any that follow are late at that watermark. So rows due by then need not wait for the next epoch.
      close(moments && !eager ? Math.max(inForce, JoinTimer.atEnd()) : inForce, out);
      return out.iterator();
    }

    private void take(JoinCommit commit, JoinOutput out) {
      right.take(commit.rights);
      if (leftRetracts) {
        Map<PackedRow, long[]> sums = new LinkedHashMap<>();
        for (Row row : commit.lefts) {
          sums.computeIfAbsent(
              PackedRow.of((byte[]) row.get(JoinPlan.ROW), row.getLong(JoinPlan.TIME)), k -> new long[1])[0] +=
              row.getLong(JoinPlan.WEIGHT);
        }
        sums.forEach((row, sum) -> left(row.row(), row.at(), sum[0], out));
      } else {
        for (Row row : commit.lefts) {
          left((byte[]) row.get(JoinPlan.ROW), row.getLong(JoinPlan.TIME), 1, out);
        }
      }
    }

    @Override
    public scala.collection.Iterator<Row> handleExpiredTimer(byte[] key, TimerValues timers, ExpiredTimerInfo timer) {
      JoinOutput out = new JoinOutput(leftRetracts, false, moments);
      open();
      waiting.timer(JoinStore.NO_TIMER);
      close(JoinTimer.watermark(timers), out);
      return out.iterator();
    }

    private void open() {
      right.store().open();
      if (waiting != null) {
        waiting.open();
      }
      answers.open();
    }

    private void left(byte[] row, long at, long weight, JoinOutput out) {
      if (weight > 0) {
        if (eager) {
          answers.give(row, weight, row(best(at)), out);
        } else {
          JoinStore.Cursor known = leftRetracts ? waiting.find(at, row) : null;
          if (known == null) {
            waiting.put(new JoinStore.Entry(at, row, weight));
          } else {
            known.add(weight);
          }
        }
      } else if (weight < 0) {
        long left = -weight;
        JoinStore.Cursor known = eager ? null : waiting.find(at, row);
        if (known != null) {
          long taken = Math.min(left, known.get().weight);
          known.add(-taken);
          left -= taken;
        }
        answers.takeBack(row, left, out);
      }
    }

    private static byte[] row(JoinStore.Entry found) {
      return found == null ? null : found.row;
    }

    /** The right row that would answer a left row at {@code at} now. */
    private JoinStore.Entry best(long at) {
      JoinStore.Entry found = switch (direction) {
        case BACKWARD -> right.before(at, !strict);
        case FORWARD -> right.after(at, !strict);
        case NEAREST -> {
          JoinStore.Entry earlier = right.before(at, !strict);
          JoinStore.Entry later = right.after(at, !strict);
          yield later == null || (earlier != null && at - earlier.at <= later.at - at) ? earlier : later;
        }
      };
      return found == null || Math.abs(found.at - at) > tolerance ? null : found;
    }

    /** The time that the watermark must pass for {@code found} to be final, if the join looks forward. */
    private long settledPast(long at, JoinStore.Entry found) {
      if (direction == Direction.FORWARD) {
        return found != null ? found.at : JoinTimer.plus(at, tolerance);
      }
      return JoinTimer.plus(at, found != null ? Math.abs(found.at - at) : tolerance);
    }

    /** Answers all due rows, evicts rows that are no longer needed, and writes the state. */
    private void close(long watermark, JoinOutput out) {
      if (!eager) {
        long due = advance(watermark, out);
        JoinTimer.wake(getHandle(), waiting, Math.min(due, evictionDue(watermark)), watermark);
        waiting.flush();
      }
      right.store().flush();
      answers.flush();
    }

    /** Answers all rows due at a watermark and evicts rows that are no longer needed; returns the watermark (ms) at which rows are due next. */
    private long advance(long watermark, JoinOutput out) {
      long due = direction == Direction.BACKWARD ? settleBackward(watermark, out) : settle(watermark, out);
      if (right.evicts() && watermark != JoinTimer.UNKNOWN) {
        long from = waiting.isEmpty() ? watermark : Math.min(watermark, waiting.firstAt());
        if (direction == Direction.FORWARD) {
          right.store().removeBefore(from, null);
        } else {
          right.evict(from, !strict, tolerance);
        }
      }
      return due;
    }

    /** Left rows become due in time order, and their answers are in the same order, so one pass over both sides suffices. */
    private long settleBackward(long watermark, JoinOutput out) {
      JoinStore.Cursor cursor = waiting.start();
      JoinStore.Walk history = right.store().new Walk();
      JoinStore.Entry entry = cursor.get();
      while (entry != null && (entry.at < watermark || (strict && entry.at == watermark))) {
        JoinStore.Entry found = history.last(entry.at, !strict);
        boolean near = found != null && entry.at - found.at <= tolerance;
        answers.give(entry.row, entry.weight, near ? found.row : null, out);
        cursor.next();
        entry = cursor.get();
      }
      waiting.removeBefore(entry == null ? Long.MAX_VALUE : entry.at, null);
      return entry == null ? JoinTimer.NEVER : JoinTimer.past(strict ? entry.at - 1 : entry.at);
    }

    private long settle(long watermark, JoinOutput out) {
      long due = JoinTimer.NEVER;
      JoinStore.Cursor cursor = waiting.start();
      for (JoinStore.Entry entry = cursor.get(); entry != null; entry = cursor.get()) {
        JoinStore.Entry found = entry.at < watermark || (entry.at == watermark && strict) ? best(entry.at) : null;
        long past = settledPast(entry.at, found);
        if (past < watermark) {
          answers.give(entry.row, entry.weight, row(found), out);
          cursor.remove();
          continue;
        }
        if (entry.at >= watermark) {
          // Later rows are not due before the watermark passes this one's time.
          return Math.min(due, JoinTimer.past(strict ? entry.at - 1 : entry.at));
        }
        if (past != JoinTimer.NEVER) {
          due = Math.min(due, JoinTimer.past(past));
        }
        cursor.next();
      }
      return due;
    }

    /** The watermark (ms) at which right rows can be evicted if the key gets no more rows. */
    private long evictionDue(long watermark) {
      JoinStore store = right.store();
      if (!right.evicts() || store.isEmpty()) {
        return JoinTimer.NEVER;
      }
      boolean last = direction != Direction.FORWARD && store.size() == 1;
      if (last && tolerance == JoinTimer.NEVER) {
        return JoinTimer.NEVER;
      }
      long due = JoinTimer.past(last ? JoinTimer.plus(store.lastAt(), tolerance) : store.lastAt());
      // Already past: a waiting left row needs them, and has its own timer.
      return watermark != JoinTimer.UNKNOWN && due <= watermark / 1000 ? JoinTimer.NEVER : due;
    }
  }
}
