package dev.penstock.kernel.join;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;

/**
 * Each left row with the version of the right table that was valid at its time: the row of its key with the greatest
 * valid-from ≤ left time.
 *
 * <p>This is {@link AsofJoin} looking backward, with the same contract: of versions with the same valid-from the last to arrive
 * counts, NULL keys and times match nothing, an emitted answer never changes. Later lookups see the version before a retracted
 * one. State: every version that is not retracted; with {@code watermark} and a right
 * side that cannot retract, those that lookups may still need.
 *
 * <p>Spec: {@code kind} (inner, left), {@code leftKeys}, {@code rightKeys}, {@code leftColumns}, {@code rightColumns},
 * {@code leftTime}, {@code rightTime} (BIGINT of the same unit; microseconds in mode {@code watermark}),
 * {@code leftWeight}, {@code rightWeight}, {@code mode} (eager, watermark).
 */
public final class TemporalJoin {
  private TemporalJoin() {}

  /** Joins two frames. Output: left columns, right columns, {@code __weight}. */
  public static Dataset<Row> apply(Dataset<Row> left, Dataset<Row> right, String specJson) {
    return AsofJoin.join(
        left, right, new JoinSpec(specJson), AsofJoin.Direction.BACKWARD, false, JoinTimer.NEVER);
  }
}
