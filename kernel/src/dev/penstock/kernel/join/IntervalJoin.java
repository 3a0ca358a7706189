package dev.penstock.kernel.join;

import dev.penstock.kernel.row.PackedRow;
import dev.penstock.kernel.row.PairPredicate;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.types.StructType;

/**
 * Join of two streams whose rows match only when their times are close: right time − left time lies in [lower, upper].
 *
 * <ul>
 *   <li>Result: pairs come out at once. A row of a semi join comes out with its first match (and is retracted with its
 *       last, where the right side retracts). A row that an outer or anti join keeps comes out when its state goes and it has
 *       no match. Append-only inputs give append-only output.
 *   <li>NULLs: a NULL key or a NULL time matches nothing; an outer or anti row like that comes out at once.
 *   <li>State: the rows that can still find a match. A left row goes when left time + upper &lt; watermark − right lag, a right
 *       row when right time − lower &lt; watermark − left lag: a row whose time equals the watermark may still come. A lag says how
 *       far behind the watermark the rows of a side may be without being late.
 *   <li>Late rows: a row that is beyond that when it arrives is joined with what is still there, and with what arrives in the
 *       same epoch, and is not kept. So rows that leave operators below when the watermark moves find each other. A retraction of
 *       a row that is no longer there is ignored.
 *   <li>Ordering: none.
 * </ul>
 *
 * <p>Spec: that of {@link Join} without {@code ttlMs}, and {@code leftTime}, {@code rightTime} (BIGINT microseconds),
 * {@code lowerMicros}, {@code upperMicros}, {@code leftLagMicros}, {@code rightLagMicros}. Both inputs need a watermark.
 */
public final class IntervalJoin {
  private IntervalJoin() {}

  /** The join of two frames. Output: left columns, right columns (not for semi and anti), {@code __weight}. */
  public static Dataset<Row> apply(Dataset<Row> left, Dataset<Row> right, String specJson) {
    JoinSpec spec = new JoinSpec(specJson);
    JoinKind kind = JoinKind.of(spec);
    boolean[] nullSafe = spec.nullSafe();
    String residual = spec.text("residual");
    String leftTime = spec.text("leftTime");
    String rightTime = spec.text("rightTime");
    long lower = spec.required("lowerMicros");
    long upper = spec.required("upperMicros");
    long leftLag = spec.required("leftLagMicros");
    long rightLag = spec.required("rightLagMicros");
    if (spec.number("ttlMs") != null) {
      throw new IllegalArgumentException("an interval join keeps rows by the watermark and takes no ttlMs");
    }
    boolean copies = spec.flag("copies");
    spec.done();
    StructType leftSchema = JoinPlan.schema(left, spec.leftColumns);
    StructType rightSchema = JoinPlan.schema(right, spec.rightColumns);
    PairPredicate predicate =
        residual == null ? null : PairPredicate.of(left.sparkSession(), residual, leftSchema, rightSchema);
    Dataset<Row> packed = JoinPlan.run(
        spec,
        JoinPlan.side(left, JoinPlan.LEFT, spec.leftKeys, nullSafe, spec.leftColumns, leftTime, spec.leftWeight,
            kind.left == JoinKind.Alone.UNMATCHED, false),
        JoinPlan.side(right, JoinPlan.RIGHT, spec.rightKeys, nullSafe, spec.rightColumns, rightTime, spec.rightWeight,
            kind.right == JoinKind.Alone.UNMATCHED, false),
        new Processor(kind, predicate, lower, upper, leftLag, rightLag, copies),
        TimeMode.EventTime(),
        JoinPlan.OUTPUT);
    return JoinPlan.unpack(packed, leftSchema, kind.pairs ? rightSchema : null);
  }

  private static final class Processor extends StatefulProcessor<byte[], Row, Row> {
    private static final long serialVersionUID = 1L;

    private final JoinKind kind;
    private final PairPredicate residual;
    private final long lower;
    private final long upper;
    private final long leftLag;
    private final long rightLag;
    private final boolean copies;
    private transient JoinStore left;
    private transient JoinStore right;

    Processor(
        JoinKind kind, PairPredicate residual, long lower, long upper, long leftLag, long rightLag, boolean copies) {
      this.copies = copies;
      this.kind = kind;
      this.residual = residual;
      this.lower = lower;
      this.upper = upper;
      this.leftLag = leftLag;
      this.rightLag = rightLag;
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
        int side = row.getInt(JoinPlan.SIDE);
        long at = side > JoinPlan.RIGHT ? 0 : row.getLong(JoinPlan.TIME);
        changes.get(side).computeIfAbsent(PackedRow.of((byte[]) row.get(JoinPlan.ROW), at), k -> new long[1])[0] +=
            row.getLong(JoinPlan.WEIGHT);
      }
      changes.forEach(change -> change.values().removeIf(sum -> sum[0] == 0));
      // Rows that differ only in a time that is not among their columns are the same row outside.
      JoinOutput out = new JoinOutput(true, copies);
      changes.get(JoinPlan.LEFT_ALONE).forEach((row, sum) -> out.add(row.row(), null, sum[0]));
      changes.get(JoinPlan.RIGHT_ALONE).forEach((row, sum) -> out.add(null, row.row(), sum[0]));
      if (!changes.get(JoinPlan.LEFT).isEmpty() || !changes.get(JoinPlan.RIGHT).isEmpty()) {
        long watermark = JoinTimer.watermark(timers);
        left.open();
        right.open();
        change(true, changes.get(JoinPlan.LEFT), out);
        change(false, changes.get(JoinPlan.RIGHT), out);
        close(watermark, out);
      }
      return out.iterator();
    }

    @Override
    public scala.collection.Iterator<Row> handleExpiredTimer(byte[] key, TimerValues timers, ExpiredTimerInfo timer) {
      JoinOutput out = new JoinOutput(true, copies);
      left.open();
      right.open();
      left.timer(JoinStore.NO_TIMER);
      close(JoinTimer.watermark(timers), out);
      return out.iterator();
    }

    /** The smallest time that a row of a side must have to be kept. */
    private long keptFrom(boolean isLeft, long watermark) {
      if (watermark == JoinTimer.UNKNOWN) {
        return Long.MIN_VALUE;
      }
      return JoinTimer.plus(watermark, isLeft ? -upper - rightLag : lower - leftLag);
    }

    private void change(boolean fromLeft, Map<PackedRow, long[]> changes, JoinOutput out) {
      if (changes.isEmpty()) {
        return;
      }
      JoinStore mine = fromLeft ? left : right;
      JoinStore other = fromLeft ? right : left;
      JoinKind.Alone myAlone = fromLeft ? kind.left : kind.right;
      JoinKind.Alone otherAlone = fromLeft ? kind.right : kind.left;
      boolean visit = !other.isEmpty()
          && (kind.pairs || myAlone != JoinKind.Alone.NEVER || otherAlone != JoinKind.Alone.NEVER);

      for (Map.Entry<PackedRow, long[]> item : changes.entrySet()) {
        byte[] row = item.getKey().row();
        long at = item.getKey().at();
        long weight = item.getValue()[0];
        JoinStore.Cursor cursor = mine.find(at, row);
        JoinStore.Entry entry = cursor == null ? null : cursor.get();
        if (entry == null && weight < 0) {
          continue;
        }
        long before = entry == null ? 0 : entry.weight;
        long matches = entry == null ? 0 : entry.matches;
        if (visit) {
          long first = JoinTimer.plus(at, fromLeft ? lower : -upper);
          long last = JoinTimer.plus(at, fromLeft ? upper : -lower);
          JoinStore.Cursor place = other.from(first);
          for (JoinStore.Entry match = place.get(); match != null && match.at <= last; match = place.get()) {
            if (residual == null || (fromLeft ? residual.test(row, match.row) : residual.test(match.row, row))) {
              if (kind.pairs) {
                out.add(fromLeft ? row : match.row, fromLeft ? match.row : row, weight * match.weight);
              }
              if (entry == null) {
                matches += match.weight;
              }
              if (otherAlone != JoinKind.Alone.NEVER) {
                if (otherAlone == JoinKind.Alone.MATCHED) {
                  alone(!fromLeft, match.row,
                      otherAlone.weight(match.weight, match.matches + weight)
                          - otherAlone.weight(match.weight, match.matches),
                      out);
                }
                match.matches += weight;
                place.touch();
              }
            }
            place.next();
          }
        }
        if (myAlone == JoinKind.Alone.MATCHED) {
          alone(fromLeft, row, myAlone.weight(before + weight, matches) - myAlone.weight(before, matches), out);
        }
        if (cursor != null) {
          cursor.add(weight);
        } else {
          JoinStore.Entry fresh = new JoinStore.Entry(at, row, weight);
          fresh.matches = myAlone == JoinKind.Alone.NEVER ? 0 : matches;
          mine.put(fresh);
        }
      }
    }

    /** Lets the rows go that can find no match any more, and writes the state. */
    private void close(long watermark, JoinOutput out) {
      evict(true, watermark, out);
      evict(false, watermark, out);
      long due = JoinTimer.NEVER;
      if (!left.isEmpty()) {
        due = JoinTimer.past(JoinTimer.plus(left.firstAt(), upper + rightLag));
      }
      if (!right.isEmpty()) {
        due = Math.min(due, JoinTimer.past(JoinTimer.plus(right.firstAt(), -lower + leftLag)));
      }
      JoinTimer.wake(getHandle(), left, due, watermark);
      left.flush();
      right.flush();
    }

    private void evict(boolean isLeft, long watermark, JoinOutput out) {
      JoinKind.Alone alone = isLeft ? kind.left : kind.right;
      (isLeft ? left : right).removeBefore(
          keptFrom(isLeft, watermark),
          alone != JoinKind.Alone.UNMATCHED
              ? null
              : entry -> alone(isLeft, entry.row, alone.weight(entry.weight, entry.matches), out));
    }

    private static void alone(boolean isLeft, byte[] row, long weight, JoinOutput out) {
      out.add(isLeft ? row : null, isLeft ? null : row, weight);
    }
  }
}
