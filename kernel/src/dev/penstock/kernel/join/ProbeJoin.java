package dev.penstock.kernel.join;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
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
 * The right side of a key as it was at several times around each left row.
 *
 * <ul>
 *   <li>Result: one row per left row and offset, with the offset in milliseconds, the probe time (left time + offset,
 *       microseconds) and the last right row with a time ≤ the probe time, or NULLs. A row once put out never changes. Weights are 1; a left side that retracts is refused.
 *   <li>Ties: of right rows with the same time the last arrived counts.
 *   <li>NULLs: a NULL key matches nothing: its probes come out at once, with NULLs. A NULL left time gives no rows.
 *   <li>{@code watermark}: a probe comes out when the watermark has reached its time (≥). A right row with exactly that
 *       time that comes later is not seen by it.
 *   <li>{@code eager}: all probes come out on arrival, with the right rows of this and earlier epochs.
 *   <li>State ({@code watermark}): left rows with probes to come, one entry each; right rows from the last one at or before
 *       min(next probe, watermark + smallest offset). {@code eager}: the right rows, for ever. A right side that can retract is kept whole.
 *   <li>Late rows: probes that are due come out at once, with what is kept.
 *   <li>Ordering: none.
 * </ul>
 *
 * <p>Spec: {@code leftKeys}, {@code rightKeys}, {@code leftColumns}, {@code rightColumns}, {@code leftTime},
 * {@code rightTime} (BIGINT microseconds), {@code offsetsMicros} (whole milliseconds), {@code offsetName}, {@code probeName},
 * {@code mode}, {@code rightWeight}.
 */
public final class ProbeJoin {
  private static final long MICROS = 1000;

  private ProbeJoin() {}

  /** The join of two frames. Output: left columns, right columns, the offset, the probe time, {@code __weight}. */
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
      throw new IllegalArgumentException("a probe join cannot take a left side that retracts");
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
        JoinPlan.side(left, JoinPlan.LEFT, spec.leftKeys, nullSafe, spec.leftColumns, leftTime, null, true, false),
        JoinPlan.side(right, JoinPlan.RIGHT, spec.rightKeys, nullSafe, spec.rightColumns, rightTime, spec.rightWeight,
            false, true),
        new Processor(offsets, eager, spec.rightWeight != null),
        eager ? TimeMode.None() : TimeMode.EventTime(),
        output);
    return JoinPlan.unpack(
        packed, JoinPlan.schema(left, spec.leftColumns), JoinPlan.schema(right, spec.rightColumns), offsetName,
        probeName);
  }

  private static final class Processor extends StatefulProcessor<byte[], Row, Row> {
    private static final long serialVersionUID = 1L;

    private final long[] offsets;
    private final boolean eager;
    private final boolean rightRetracts;
    private transient JoinHistory right;
    /** Left rows by the time of their next probe; {@code matches} is the number of that probe. */
    private transient JoinStore waiting;

    Processor(long[] offsets, boolean eager, boolean rightRetracts) {
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
      List<Row> out = new ArrayList<>();
      List<Row> lefts = new ArrayList<>();
      List<Row> rights = new ArrayList<>();
      while (rows.hasNext()) {
        Row row = rows.next();
        switch (row.getInt(JoinPlan.SIDE)) {
          case JoinPlan.LEFT -> lefts.add(row);
          case JoinPlan.RIGHT -> rights.add(row);
          default -> {
            for (int i = 0; i < offsets.length && !row.isNullAt(JoinPlan.TIME); i++) {
              emit((byte[]) row.get(JoinPlan.ROW), null, i, row.getLong(JoinPlan.TIME) + offsets[i], out);
            }
          }
        }
      }
      if (!lefts.isEmpty() || !rights.isEmpty()) {
        right.store().open();
        right.take(rights);
        if (eager) {
          for (Row row : lefts) {
            for (int i = 0; i < offsets.length; i++) {
              probe((byte[]) row.get(JoinPlan.ROW), i, row.getLong(JoinPlan.TIME) + offsets[i], out);
            }
          }
          right.store().flush();
        } else {
          waiting.open();
          long watermark = JoinTimer.watermark(timers);
          for (Row row : lefts) {
            advance((byte[]) row.get(JoinPlan.ROW), 0, row.getLong(JoinPlan.TIME), watermark, out);
          }
          close(watermark, out);
        }
      }
      return scala.jdk.javaapi.CollectionConverters.asScala(out.iterator());
    }

    @Override
    public scala.collection.Iterator<Row> handleExpiredTimer(byte[] key, TimerValues timers, ExpiredTimerInfo timer) {
      List<Row> out = new ArrayList<>();
      right.store().open();
      waiting.open();
      waiting.timer(JoinStore.NO_TIMER);
      close(JoinTimer.watermark(timers), out);
      return scala.jdk.javaapi.CollectionConverters.asScala(out.iterator());
    }

    private void probe(byte[] row, int number, long at, List<Row> out) {
      JoinStore.Entry found = right.before(at, true);
      emit(row, found == null ? null : found.row, number, at, out);
    }

    private void emit(byte[] row, byte[] match, int number, long at, List<Row> out) {
      out.add(RowFactory.create(row, match, offsets[number] / MICROS, at, 1L));
    }

    /** Puts out the probes of a left row that are due, from {@code number} on, and lets it wait for the next. */
    private void advance(byte[] row, int number, long time, long watermark, List<Row> out) {
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

    private void close(long watermark, List<Row> out) {
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
