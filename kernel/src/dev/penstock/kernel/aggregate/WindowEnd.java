package dev.penstock.kernel.aggregate;

import java.io.Serializable;
import org.apache.spark.sql.Row;

/**
 * The end of a group's window, and when the group closes.
 *
 * @param at its ordinal among the grouping columns, or -1 if the groups have no window
 * @param unit how many of its units make a millisecond
 * @param latenessMs how long after its end a window is open
 */
record WindowEnd(int at, long unit, long latenessMs) implements Serializable {
  /** When the window at an ordinal of {@code key} closes (epoch ms); null: never. */
  Long due(Row key, int ordinal) {
    if (ordinal < 0 || key.isNullAt(ordinal)) {
      return null;
    }
    return -Math.floorDiv(-key.getLong(ordinal), unit) + latenessMs;
  }
}
