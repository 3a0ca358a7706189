package dev.penstock.kernel.aggregate;

import java.io.Serializable;
import org.apache.spark.sql.Row;

/**
 * The end of a group's window, and when the group closes.
 *
 * @param at its ordinal among the grouping columns, or -1 if the groups have no window
 * @param unit the number of its units per millisecond
 * @param latenessMs how long a window stays open after its end
 */
record WindowEnd(int at, long unit, long latenessMs) implements Serializable {
  /** The watermark (Unix ms) at which the window at an ordinal of {@code key} closes; null: never. */
  Long due(Row key, int ordinal) {
    if (ordinal < 0 || key.isNullAt(ordinal)) {
      return null;
    }
    return -Math.floorDiv(-key.getLong(ordinal), unit) + latenessMs;
  }
}
