package dev.penstock.kernel.join;

import dev.penstock.kernel.state.Moment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeMap;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * Looks up the right side of a key at several times around each left row.
 *
 * <ul>
 *   <li>Result: one row per left row and offset, with the offset in milliseconds, the probe time (left time + offset, microseconds) and
 *       the last right row with a time ≤ the probe time, or NULLs. An emitted row never changes. Weights are 1; a left side that retracts
 *       is refused.
 *   <li>Ties: of right rows with the same time the last to arrive counts.
 *   <li>NULLs: a NULL key matches nothing: its probes are emitted immediately, with NULLs. A NULL left time gives no rows.
 *   <li>{@code watermark}: a probe is emitted when the watermark has reached its time (≥). It does not see a right row with exactly that
 *       time that arrives later.
 *   <li>{@code eager}: all probes are emitted on arrival, with the right rows of this and earlier epochs.
 *   <li>State ({@code watermark}): left rows with pending probes, one entry each; right rows from the last one at or before
 *       min(next probe, watermark + smallest offset). {@code eager}: the right rows, for ever. A right side that can retract is kept completely.
 *   <li>Late rows: due probes are emitted immediately, from the rows still in the state. Both depend on the watermark in force when the
 *       row arrived or, if a side is the output of an operator below, which has no commits, on that of the epoch.
 *   <li>Ordering: none.
 * </ul>
 *
 * <p>Spec: {@code leftKeys}, {@code rightKeys}, {@code leftColumns}, {@code rightColumns}, {@code leftTime},
 * {@code rightTime} (BIGINT microseconds), {@code offsetsMicros} (whole milliseconds), {@code offsetName}, {@code probeName},
 * {@code mode}, {@code rightWeight}, {@code leftMoment}, {@code rightMoment} (the two columns of a {@link Moment}).
 */
public final class ProbeJoin {
  private static final long MICROS = 1000;

  private ProbeJoin() {}

  /** Joins two frames. Output: left columns, right columns, the offset, the probe time, {@code __weight}. */
  public static Dataset<Row> apply(Dataset<Row> left, Dataset<Row> right, String specJson) {
    JoinSpec spec = new JoinSpec(specJson);
    long[] offsets = spec.numbers("offsetsMicros");
    String offsetName = spec.text("offsetName");
    String probeName = spec.text("probeName");
    boolean eager = spec.oneOf("mode", "eager", "watermark").equals("eager");
    String leftTime = spec.text("leftTime");
    String rightTime = spec.text("rightTime");
    spec.done();
    if (spec.leftWeight != null) {
      throw new IllegalArgumentException("the left side of a probe join must not retract rows");
    }
    if (Arrays.stream(offsets).anyMatch(offset -> offset % MICROS != 0)) {
      throw new IllegalArgumentException("offsetsMicros must be whole milliseconds");
    }
    Arrays.sort(offsets);
    StructType output = new StructType()
        .add("__left", DataTypes.BinaryType, true)
        .add("__right", DataTypes.BinaryType, true)
        .add(offsetName, DataTypes.LongType, false)
        .add(probeName, DataTypes.LongType, false)
        .add("__weight", DataTypes.LongType, false);
    boolean[] nullSafe = new boolean[spec.leftKeys.size()];
    Dataset<Row> packed = JoinPlan.run(
        spec,
        JoinPlan.side(spec, left, JoinPlan.LEFT, spec.leftKeys, nullSafe, spec.leftColumns, leftTime, null, true, false,
            spec.moments ? spec.leftMoment : List.of()),
        JoinPlan.side(spec, right, JoinPlan.RIGHT, spec.rightKeys, nullSafe, spec.rightColumns, rightTime, spec.rightWeight,
            false, true, spec.moments ? spec.rightMoment : List.of()),
        new Processor(offsets, eager, spec.rightWeight != null, spec.moments),
        eager ? TimeMode.None() : TimeMode.EventTime(),
        spec.moments ? output.add(JoinPlan.WATERMARK, DataTypes.LongType, true) : output);
    List<String> more = new ArrayList<>(List.of(offsetName, probeName));
    more.addAll(List.of(JoinPlan.more(spec)));
    return JoinPlan.unpack(
        packed, JoinPlan.schema(left, spec.leftColumns), JoinPlan.schema(right, spec.rightColumns),
        more.toArray(String[]::new));
  }

  private static final class Processor extends StatefulProcessor<byte[], Row, Row> {
    private static final long serialVersionUID = 1L;

    private final long[] offsets;
    private final boolean eager;
    private final boolean rightRetracts;
    private final boolean moments;
    private transient JoinHistory right;
    /** Left rows by the time of their next probe; {@code matches} is the number of that probe. */
    private transient JoinStore waiting;

    Processor(long[] offsets, boolean eager, boolean rightRetracts, boolean moments) {
      this.moments = moments;
      this.offsets = offsets;
      this.eager = eager;
      this.rightRetracts = rightRetracts;
    }

    @Override
    public void init(OutputMode outputMode, TimeMode timeMode) {
      right = new JoinHistory(getHandle(), rightRetracts);
      if (!eager) {
        waiting = new JoinStore(getHandle(), "waiting");
      }
    }

    @Override
    public scala.collection.Iterator<Row> handleInputRows(
        byte[] key, scala.collection.Iterator<Row> rows, TimerValues timers) {
      Output out = new Output();
      TreeMap<Moment, JoinCommit> commits = new TreeMap<>();
      while (rows.hasNext()) {
        Row row = rows.next();
        Moment moment = JoinPlan.moment(row);
        switch (row.getInt(JoinPlan.SIDE)) {
          case JoinPlan.LEFT -> commits.computeIfAbsent(moment, m -> new JoinCommit()).lefts.add(row);
          case JoinPlan.RIGHT -> commits.computeIfAbsent(moment, m -> new JoinCommit()).rights.add(row);
          default -> {
            out.moment = moment;
            for (int i = 0; i < offsets.length && !row.isNullAt(JoinPlan.TIME); i++) {
              emit((byte[]) row.get(JoinPlan.ROW), null, i, row.getLong(JoinPlan.TIME) + offsets[i], out);
            }
          }
        }
      }
      if (commits.isEmpty()) {
        return out.iterator();
      }
      right.store().open();
      if (eager) {
        commits.values().forEach(commit -> right.take(commit.rights));
        commits.values().forEach(commit -> {
          for (Row row : commit.lefts) {
            for (int i = 0; i < offsets.length; i++) {
              probe((byte[]) row.get(JoinPlan.ROW), i, row.getLong(JoinPlan.TIME) + offsets[i], out);
            }
          }
        });
        right.store().flush();
        return out.iterator();
      }
      waiting.open();
      long inForce = JoinTimer.watermark(timers);
      commits.forEach((moment, commit) -> {
        boolean behind = moment != Moment.ON_TIME;
        long watermark = behind ? Math.max(inForce, moment.watermark() * MICROS) : inForce;
        out.moment = Moment.ON_TIME;
        if (behind) {
          // Everything due was emitted and evicted before these rows arrived.
          answer(watermark, out);
        }
        right.take(commit.rights);
        out.moment = moment;
        for (Row row : commit.lefts) {
          advance((byte[]) row.get(JoinPlan.ROW), 0, row.getLong(JoinPlan.TIME), watermark, out);
        }
        if (behind) {
          answer(watermark, out);
        }
      });
      out.moment = Moment.ON_TIME;
      close(inForce, out);
      return out.iterator();
    }

    /** The output rows, and the moment of the rows that cause the next ones. */
    private static final class Output {
      final List<Row> rows = new ArrayList<>();
      Moment moment = Moment.ON_TIME;

      scala.collection.Iterator<Row> iterator() {
        return scala.jdk.javaapi.CollectionConverters.asScala(rows.iterator());
      }
    }

    @Override
    public scala.collection.Iterator<Row> handleExpiredTimer(byte[] key, TimerValues timers, ExpiredTimerInfo timer) {
      Output out = new Output();
      right.store().open();
      waiting.open();
      waiting.timer(JoinStore.NO_TIMER);
      close(JoinTimer.watermark(timers), out);
      return out.iterator();
    }

    private void probe(byte[] row, int number, long at, Output out) {
      JoinStore.Entry found = right.before(at, true);
      emit(row, found == null ? null : found.row, number, at, out);
    }

    private void emit(byte[] row, byte[] match, int number, long at, Output out) {
      long offset = offsets[number] / MICROS;
      Long before = out.moment == Moment.ON_TIME ? null : out.moment.watermark();
      out.rows.add(
          moments ? RowFactory.create(row, match, offset, at, 1L, before) : RowFactory.create(row, match, offset, at, 1L));
    }

    /** Emits the due probes of a left row, from {@code number} on, and stores the row until the next one. */
    private void advance(byte[] row, int number, long time, long watermark, Output out) {
      int next = number;
      while (next < offsets.length && time + offsets[next] <= watermark) {
        probe(row, next, time + offsets[next], out);
        next++;
      }
      if (next < offsets.length) {
        JoinStore.Entry entry = new JoinStore.Entry(time + offsets[next], row, 1);
        entry.matches = next;
        waiting.put(entry);
      }
    }

    /** Emits the probes that are due at a watermark, and evicts rows that are no longer needed. */
    private void answer(long watermark, Output out) {
      List<JoinStore.Entry> due = new ArrayList<>();
      if (watermark != JoinTimer.UNKNOWN) {
        waiting.removeBefore(watermark + 1, due::add);
      }
      for (JoinStore.Entry entry : due) {
        int number = (int) entry.matches;
        advance(entry.row, number, entry.at - offsets[number], watermark, out);
      }
      if (right.evicts() && watermark != JoinTimer.UNKNOWN) {
        long needed = watermark + offsets[0];
        right.evict(waiting.isEmpty() ? needed : Math.min(needed, waiting.firstAt()), true, JoinTimer.NEVER);
      }
    }

    private void close(long watermark, Output out) {
      answer(watermark, out);
      long wake = waiting.isEmpty() ? JoinTimer.NEVER : JoinTimer.reached(waiting.firstAt());
      if (right.evicts() && right.store().size() > 1) {
        long free = JoinTimer.reached(right.store().lastAt() - offsets[0]);
        if (watermark == JoinTimer.UNKNOWN || free > watermark / MICROS) {
          wake = Math.min(wake, free);
        }
      }
      JoinTimer.wake(getHandle(), waiting, wake, watermark);
      waiting.flush();
      right.store().flush();
    }
  }
}
