package dev.penstock.kernel.join;

import com.fasterxml.jackson.databind.JsonNode;
import dev.penstock.kernel.row.PackedRow;
import dev.penstock.kernel.state.Moment;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
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
 * Join of two streams whose rows match only if their times are close: right time − left time is in [lower, upper].
 *
 * <ul>
 *   <li>Result: pairs are emitted immediately. A row of a semi join is emitted with its first match (and retracted with its
 *       last, if the right side retracts). An unmatched row of an outer or anti join is emitted when it is removed from the
 *       state. Append-only inputs give append-only output.
 *   <li>NULLs: a NULL key or a NULL time matches nothing; such a row of an outer or anti join is emitted immediately.
 *   <li>State: the rows that can still match. A left row is removed when left time + upper &lt; watermark − right lag, a right
 *       row when right time − lower &lt; watermark − left lag: a row whose time equals the watermark may still arrive. A lag is how
 *       far behind the watermark the rows of a side may be without being late.
 *   <li>Late rows: a row that is past this bound when it arrives is joined with the rows kept at the watermark in force at that time
 *       and with the rows of its own commit, and is not kept. A retraction of a removed row is ignored. If a side is the output of an
 *       operator below, which has no commits, the watermark of the epoch and the rows of the same epoch are used instead, so rows that
 *       this operator emits when the watermark advances match each other.
 *   <li>Ordering: none.
 * </ul>
 *
 * <p>Spec: that of {@link Join} without {@code ttlMs}, and {@code leftTime}, {@code rightTime} (BIGINT microseconds),
 * {@code lowerMicros}, {@code upperMicros}, {@code leftLagMicros}, {@code rightLagMicros}, {@code leftMoment}, {@code rightMoment} (the
 * two columns of a {@link Moment}). Both inputs need a watermark.
 */
public final class IntervalJoin {
  private IntervalJoin() {}

  /** Joins two frames. Output: left columns, right columns (not for semi and anti), {@code __weight}. */
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
    JsonNode failing = spec.part("errors");
    spec.done();
    StructType leftSchema = JoinPlan.schema(left, spec.leftColumns);
    StructType rightSchema = JoinPlan.schema(right, spec.rightColumns);
    Residual rest = Residual.of(left.sparkSession(), residual, failing, leftSchema, rightSchema);
    Dataset<Row> packed = JoinPlan.run(
        spec,
        JoinPlan.side(spec, left, JoinPlan.LEFT, spec.leftKeys, nullSafe, spec.leftColumns, leftTime, spec.leftWeight,
            kind.left == JoinKind.Alone.UNMATCHED, false, spec.moments ? spec.leftMoment : List.of()),
        JoinPlan.side(spec, right, JoinPlan.RIGHT, spec.rightKeys, nullSafe, spec.rightColumns, rightTime, spec.rightWeight,
            kind.right == JoinKind.Alone.UNMATCHED, false, spec.moments ? spec.rightMoment : List.of()),
        new Processor(
            kind, rest, lower, upper, leftLag, rightLag, spec.leftWeight != null, spec.rightWeight != null, copies, spec.moments),
        TimeMode.EventTime(),
        JoinPlan.output(spec));
    return JoinPlan.unpack(packed, leftSchema, kind.pairs ? rightSchema : null, JoinPlan.more(spec));
  }

  private static final class Processor extends StatefulProcessor<byte[], Row, Row> {
    private static final long serialVersionUID = 1L;

    private final JoinKind kind;
    private final Residual residual;
    private final long lower;
    private final long upper;
    private final long leftLag;
    private final long rightLag;
    private final boolean leftRetracts;
    private final boolean rightRetracts;
    private final boolean copies;
    private final boolean moments;
    private transient JoinStore left;
    private transient JoinStore right;

    Processor(
        JoinKind kind, Residual residual, long lower, long upper, long leftLag, long rightLag, boolean leftRetracts,
        boolean rightRetracts, boolean copies, boolean moments) {
      this.copies = copies;
      this.moments = moments;
      this.kind = kind;
      this.residual = residual;
      this.lower = lower;
      this.upper = upper;
      this.leftLag = leftLag;
      this.rightLag = rightLag;
      this.leftRetracts = leftRetracts;
      this.rightRetracts = rightRetracts;
    }

    @Override
    public void init(OutputMode outputMode, TimeMode timeMode) {
      left = new JoinStore(getHandle(), "left");
      right = new JoinStore(getHandle(), "right");
    }

    @Override
    public scala.collection.Iterator<Row> handleInputRows(
        byte[] key, scala.collection.Iterator<Row> rows, TimerValues timers) {
      TreeMap<Moment, Changes> commits = new TreeMap<>();
      while (rows.hasNext()) {
        Row row = rows.next();
        int side = row.getInt(JoinPlan.SIDE);
        long at = side > JoinPlan.RIGHT ? 0 : row.getLong(JoinPlan.TIME);
        commits.computeIfAbsent(JoinPlan.moment(row), Changes::new)
            .add(side, PackedRow.of((byte[]) row.get(JoinPlan.ROW), at), row.getLong(JoinPlan.WEIGHT));
      }
      // Rows that differ only in a time that is not an output column are equal in the output.
      JoinOutput out = new JoinOutput(true, copies, moments);
      boolean opened = false;
      for (Changes commit : commits.values()) {
        commit.consolidate();
        out.at(commit.moment);
        commit.side(JoinPlan.LEFT_ALONE).forEach((row, sum) -> out.add(row.row(), null, sum[0]));
        commit.side(JoinPlan.RIGHT_ALONE).forEach((row, sum) -> out.add(null, row.row(), sum[0]));
        if (commit.side(JoinPlan.LEFT).isEmpty() && commit.side(JoinPlan.RIGHT).isEmpty()) {
          continue;
        }
        if (!opened) {
          left.open();
          right.open();
          opened = true;
        }
        change(true, commit, out);
        change(false, commit, out);
      }
      if (opened) {
        out.at(Moment.ON_TIME);
        close(JoinTimer.watermark(timers), out);
      }
      return out.iterator();
    }

    @Override
    public scala.collection.Iterator<Row> handleExpiredTimer(byte[] key, TimerValues timers, ExpiredTimerInfo timer) {
      JoinOutput out = new JoinOutput(true, copies, moments);
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

    /**
     * The rows of one moment. A row behind the watermark matches the rows of its own commit, and the rows kept at the watermark in force at that moment, which may be
     * fewer than the state holds.
     */
    private static final class Changes {
      final Moment moment;
      /** The watermark in microseconds; {@link JoinTimer#UNKNOWN} for rows that are on time, which match everything in the state. */
      final long watermark;
      private final List<Map<PackedRow, long[]>> sides =
          List.of(new LinkedHashMap<>(), new LinkedHashMap<>(), new LinkedHashMap<>(), new LinkedHashMap<>());
      /** Rows of this commit that are too old to be kept: only rows of the same commit match them. */
      final Set<JoinStore.Entry> fresh = Collections.newSetFromMap(new IdentityHashMap<>());

      Changes(Moment moment) {
        this.moment = moment;
        watermark = moment == Moment.ON_TIME ? JoinTimer.UNKNOWN : Math.multiplyExact(moment.watermark(), 1000L);
      }

      void add(int side, PackedRow row, long weight) {
        sides.get(side).computeIfAbsent(row, k -> new long[1])[0] += weight;
      }

      void consolidate() {
        sides.forEach(side -> side.values().removeIf(sum -> sum[0] == 0));
      }

      Map<PackedRow, long[]> side(int side) {
        return sides.get(side);
      }
    }

    private void change(boolean fromLeft, Changes commit, JoinOutput out) {
      Map<PackedRow, long[]> changes = commit.side(fromLeft ? JoinPlan.LEFT : JoinPlan.RIGHT);
      if (changes.isEmpty()) {
        return;
      }
      long mineFrom = keptFrom(fromLeft, commit.watermark);
      long otherFrom = keptFrom(!fromLeft, commit.watermark);
      JoinStore mine = fromLeft ? left : right;
      JoinStore other = fromLeft ? right : left;
      JoinKind.Alone myAlone = fromLeft ? kind.left : kind.right;
      JoinKind.Alone otherAlone = fromLeft ? kind.right : kind.left;
      boolean retracts = fromLeft ? leftRetracts : rightRetracts;
      boolean visit = !other.isEmpty()
          && (kind.pairs || myAlone != JoinKind.Alone.NEVER || otherAlone != JoinKind.Alone.NEVER);

      for (Map.Entry<PackedRow, long[]> item : changes.entrySet()) {
        byte[] row = item.getKey().row();
        long at = item.getKey().at();
        long weight = item.getValue()[0];
        // If this row is too old to be kept, an earlier equal row has been removed. Equal rows that are never retracted may be several entries.
        JoinStore.Cursor cursor = at < mineFrom ? null : retracts ? mine.find(at, row) : mine.findNear(at, row);
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
            boolean there = match.at >= otherFrom || commit.fresh.contains(match);
            if (there
                && (residual == null
                    || residual.matches(
                        fromLeft ? row : match.row, fromLeft ? match.row : row, weight * match.weight))) {
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
          entry = new JoinStore.Entry(at, row, weight);
          entry.matches = myAlone == JoinKind.Alone.NEVER ? 0 : matches;
          mine.put(entry);
        }
        if (at < mineFrom) {
          commit.fresh.add(entry);
        }
      }
    }

    /** Removes rows that can no longer match, and writes the state. */
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
