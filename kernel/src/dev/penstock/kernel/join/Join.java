package dev.penstock.kernel.join;

import com.fasterxml.jackson.databind.JsonNode;
import dev.penstock.kernel.row.Pack;
import dev.penstock.kernel.row.PackedRow;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * Regular join of two changing collections.
 *
 * <ul>
 *   <li>Result: after every epoch the summed output is what SQL's join of the two summed inputs gives. One epoch's output is
 *       consolidated per key.
 *   <li>NULLs: a NULL key matches nothing, except where {@code nullSafe} says so; such a row is still emitted if the
 *       kind keeps unmatched rows. A residual that is NULL is false. The residual belongs to ON.
 *   <li>Errors: a pair for which the residual fails is no match; it is reported while both of its rows exist.
 *   <li>Late rows: none, because the join has no event time.
 *   <li>Ordering: none.
 *   <li>{@code mark}: each left row once, with a BOOLEAN column, never NULL, that says whether it has a match.
 *   <li>State: each row of both sides once, with its weight, and (outer, semi, anti, mark with a residual or {@code ttlMs}) its number of matches. A row whose weight becomes zero leaves
 *       nothing. An epoch reads only the keys that it touches, and rows of a side only if the other side has changed, or
 *       to find the changed rows themselves.
 *   <li>{@code ttlMs}: a row that has not changed for that long (by the wall clock at the beginning of an epoch, which a replay
 *       sees again) expires: it matches no later row, its own late retraction is ignored, and its output is not
 *       retracted. The first epoch after that removes its state. With a processing-time timer Spark would run no-data
 *       batches without end, so the query must be started with {@code spark.sql.streaming.noDataMicroBatches.enabled = false}.
 * </ul>
 *
 * <p>Spec: {@code kind}, {@code leftKeys}, {@code rightKeys}, {@code nullSafe}, {@code leftColumns}, {@code rightColumns},
 * {@code leftWeight}, {@code rightWeight}, {@code residual}, {@code errors} (see {@link Residual}), {@code ttlMs}, {@code mark} (the name of the column),
 * {@code copies} (a row of weight n is emitted n times, for a result without retractions).
 */
public final class Join {
  private Join() {}

  /** Joins two frames. Output: left columns, right columns (not for semi and anti; for mark its column), {@code __weight}. */
  public static Dataset<Row> apply(Dataset<Row> left, Dataset<Row> right, String specJson) {
    JoinSpec spec = new JoinSpec(specJson);
    JoinKind kind = JoinKind.of(spec);
    boolean[] nullSafe = spec.nullSafe();
    String residual = spec.text("residual");
    Long ttl = spec.number("ttlMs");
    String mark = kind == JoinKind.MARK ? spec.text("mark") : null;
    boolean copies = spec.flag("copies");
    JsonNode failing = spec.part("errors");
    spec.done();
    StructType leftSchema = JoinPlan.schema(left, spec.leftColumns);
    StructType rightSchema = JoinPlan.schema(right, spec.rightColumns);
    Residual rest = Residual.of(left.sparkSession(), residual, failing, leftSchema, rightSchema);
    Dataset<Row> rights = JoinPlan.side(spec, right, JoinPlan.RIGHT, spec.rightKeys, nullSafe, spec.rightColumns, null,
        spec.rightWeight, kind.right.unmatched(), false, List.of());
    Dataset<Row> packed = JoinPlan.run(
        spec,
        JoinPlan.side(spec, left, JoinPlan.LEFT, spec.leftKeys, nullSafe, spec.leftColumns, null, spec.leftWeight,
            kind.left.unmatched(), false, List.of()),
        spec.hosted || kind.pairs || residual != null ? rights : JoinPlan.combined(rights),
        new Processor(kind, rest, ttl == null ? 0 : ttl, copies),
        ttl == null ? TimeMode.None() : TimeMode.ProcessingTime(),
        JoinPlan.OUTPUT);
    StructType marked = mark == null ? null : new StructType().add(mark, DataTypes.BooleanType, true);
    return JoinPlan.unpack(packed, leftSchema, kind.pairs ? rightSchema : marked);
  }

  private static byte[] packed(boolean mark) {
    UnsafeRow row = new UnsafeRow(1);
    byte[] bytes = new byte[UnsafeRow.calculateBitSetWidthInBytes(1) + Long.BYTES];
    row.pointTo(bytes, bytes.length);
    row.setBoolean(0, mark);
    return bytes;
  }

  private static final class Processor extends StatefulProcessor<byte[], Row, Row> {
    private static final long serialVersionUID = 1L;
    private static final byte[] MATCHED = packed(true);
    private static final byte[] UNMATCHED = packed(false);

    private final JoinKind kind;
    private final Residual residual;
    private final long ttl;
    private final boolean copies;
    /** Whether each row keeps its own number of matches; otherwise it is the weight of the whole other side. */
    private final boolean counted;
    private transient JoinStore left;
    private transient JoinStore right;

    Processor(JoinKind kind, Residual residual, long ttl, boolean copies) {
      this.copies = copies;
      this.kind = kind;
      this.residual = residual;
      this.ttl = ttl;
      this.counted = residual != null || ttl > 0;
    }

    @Override
    public void init(OutputMode outputMode, TimeMode timeMode) {
      left = new JoinStore(getHandle(), "left");
      right = new JoinStore(getHandle(), "right");
    }

    @Override
    public scala.collection.Iterator<Row> handleInputRows(
        byte[] key, scala.collection.Iterator<Row> rows, TimerValues timers) {
      List<Map<PackedRow, long[]>> changes =
          List.of(new LinkedHashMap<>(), new LinkedHashMap<>(), new LinkedHashMap<>(), new LinkedHashMap<>());
      while (rows.hasNext()) {
        Row row = rows.next();
        changes.get(row.getInt(JoinPlan.SIDE))
            .computeIfAbsent(PackedRow.of((byte[]) row.get(JoinPlan.ROW), 0), k -> new long[1])[0] +=
            row.getLong(JoinPlan.WEIGHT);
      }
      changes.forEach(change -> change.values().removeIf(sum -> sum[0] == 0));
      Map<PackedRow, long[]> lefts = changes.get(JoinPlan.LEFT);
      Map<PackedRow, long[]> rights = changes.get(JoinPlan.RIGHT);
      JoinOutput out = new JoinOutput(!lefts.isEmpty() && !rights.isEmpty(), copies);
      changes.get(JoinPlan.LEFT_ALONE).forEach((row, sum) -> alone(true, row.row(), kind.left, 0, 0, sum[0], 0, out));
      changes.get(JoinPlan.RIGHT_ALONE).forEach((row, sum) -> alone(false, row.row(), kind.right, 0, 0, sum[0], 0, out));
      if (!lefts.isEmpty() || !rights.isEmpty()) {
        long now = ttl > 0 ? timers.getCurrentProcessingTimeInMs() : 0;
        left.open();
        right.open();
        if (ttl > 0) {
          forget(now);
        }
        change(true, lefts, now, out);
        change(false, rights, now, out);
        if (ttl > 0) {
          wake(now);
        }
        left.flush();
        right.flush();
      }
      return out.iterator();
    }

    @Override
    public scala.collection.Iterator<Row> handleExpiredTimer(byte[] key, TimerValues timers, ExpiredTimerInfo timer) {
      long now = timers.getCurrentProcessingTimeInMs();
      left.open();
      right.open();
      forget(now);
      wake(now);
      left.flush();
      right.flush();
      return new JoinOutput(false, false).iterator();
    }

    /** Removes expired rows. Nothing expires before the timer, which is stored with the left side. */
    private void forget(long now) {
      if (left.timer() == JoinStore.NO_TIMER || left.timer() > now) {
        return;
      }
      getHandle().deleteTimer(left.timer());
      left.timer(JoinStore.NO_TIMER);
      long oldest = Math.min(oldest(left, now), oldest(right, now));
      if (oldest != Long.MAX_VALUE) {
        getHandle().registerTimer(oldest + ttl);
        left.timer(oldest + ttl);
      }
    }

    /** Removes expired rows of one side; returns when the oldest remaining row last changed. */
    private long oldest(JoinStore store, long now) {
      long oldest = Long.MAX_VALUE;
      JoinStore.Cursor cursor = store.start();
      for (JoinStore.Entry entry = cursor.get(); entry != null; entry = cursor.get()) {
        if (entry.stamp + ttl <= now) {
          cursor.remove();
        } else {
          oldest = Math.min(oldest, entry.stamp);
          cursor.next();
        }
      }
      return oldest;
    }

    /** Ensures that the key has a timer if and only if it has rows. */
    private void wake(long now) {
      boolean rows = !left.isEmpty() || !right.isEmpty();
      if (rows && left.timer() == JoinStore.NO_TIMER) {
        getHandle().registerTimer(now + ttl);
        left.timer(now + ttl);
      } else if (!rows && left.timer() != JoinStore.NO_TIMER) {
        getHandle().deleteTimer(left.timer());
        left.timer(JoinStore.NO_TIMER);
      }
    }

    /** Applies the changes of one side, against the current other side. */
    private void change(boolean fromLeft, Map<PackedRow, long[]> changes, long now, JoinOutput out) {
      if (changes.isEmpty()) {
        return;
      }
      JoinStore mine = fromLeft ? left : right;
      JoinStore other = fromLeft ? right : left;
      JoinKind.Alone myAlone = fromLeft ? kind.left : kind.right;
      JoinKind.Alone otherAlone = fromLeft ? kind.right : kind.left;
      boolean alone = myAlone != JoinKind.Alone.NEVER || otherAlone != JoinKind.Alone.NEVER;
      boolean visit = !other.isEmpty() && (kind.pairs || (counted && alone));
      List<JoinStore.Entry> others = visit ? other.all() : List.of();
      boolean matchedBefore = mine.total() != 0;

      for (Map.Entry<PackedRow, long[]> item : changes.entrySet()) {
        byte[] row = item.getKey().row();
        long weight = item.getValue()[0];
        long hash = Pack.hash(row);
        JoinStore.Cursor cursor = mine.find(hash, row);
        JoinStore.Entry entry = cursor == null ? null : cursor.get();
        if (ttl > 0 && weight < 0 && entry == null) {
          continue;
        }
        long before = entry == null ? 0 : entry.weight;
        long matches = counted ? (entry == null ? 0 : entry.matches) : other.total();
        for (JoinStore.Entry match : others) {
          if (residual != null
              && !residual.matches(
                  fromLeft ? row : match.row, fromLeft ? match.row : row, weight * match.weight)) {
            continue;
          }
          if (kind.pairs) {
            out.add(fromLeft ? row : match.row, fromLeft ? match.row : row, weight * match.weight);
          }
          if (counted && entry == null) {
            matches += match.weight;
          }
          match.change += weight;
        }
        alone(fromLeft, row, myAlone, before, matches, before + weight, matches, out);
        if (cursor == null) {
          JoinStore.Entry fresh = new JoinStore.Entry(hash, row, weight);
          fresh.matches = counted && myAlone != JoinKind.Alone.NEVER ? matches : 0;
          fresh.stamp = now;
          mine.put(fresh);
        } else {
          entry.stamp = now;
          cursor.add(weight);
        }
      }

      if (otherAlone != JoinKind.Alone.NEVER) {
        if (counted) {
          for (JoinStore.Entry match : others) {
            if (match.change != 0) {
              long matches = match.matches + match.change;
              alone(!fromLeft, match.row, otherAlone, match.weight, match.matches, match.weight, matches, out);
              match.matches = matches;
              match.change = 0;
              other.touch(match);
            }
          }
        } else if (matchedBefore != (mine.total() != 0) && !other.isEmpty()) {
          long was = matchedBefore ? 1 : 0;
          for (JoinStore.Entry match : visit ? others : other.all()) {
            alone(!fromLeft, match.row, otherAlone, match.weight, was, match.weight, 1 - was, out);
          }
        }
      }
    }

    /** Emits the change of a single row's result when its weight and number of matches change from {@code w0}, {@code m0} to {@code w1}, {@code m1}. */
    private static void alone(
        boolean isLeft, byte[] row, JoinKind.Alone kind, long w0, long m0, long w1, long m1, JoinOutput out) {
      if (kind == JoinKind.Alone.MARKED) {
        out.add(row, UNMATCHED, (m1 == 0 ? w1 : 0) - (m0 == 0 ? w0 : 0));
        out.add(row, MATCHED, (m1 != 0 ? w1 : 0) - (m0 != 0 ? w0 : 0));
      } else {
        out.add(isLeft ? row : null, isLeft ? null : row, kind.weight(w1, m1) - kind.weight(w0, m0));
      }
    }
  }
}
