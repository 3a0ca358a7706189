package dev.penstock.kernel.join;

import dev.penstock.kernel.state.CountedHandle;
import dev.penstock.kernel.state.EventTime;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TimerValues;

/**
 * Event time for join processors: the watermark in microseconds, and one timer per key.
 *
 * <p>Spark fires a timer once the watermark is at or past it, and looks only at timers between the previous and the current
 * watermark. So processors do due work immediately and only register timers in the future.
 */
final class JoinTimer {
  /** No watermark yet. */
  static final long UNKNOWN = Long.MIN_VALUE;
  /** Never. */
  static final long NEVER = Long.MAX_VALUE;

  private static final long MICROS = 1000;

  private JoinTimer() {}

  /** The watermark in force, in microseconds. Future rows may have this time, but no smaller one. */
  static long watermark(TimerValues timers) {
    return EventTime.unknown(timers) ? UNKNOWN : Math.multiplyExact(timers.getCurrentWatermarkInMs(), MICROS);
  }

  /** The watermark that the epoch of this task reaches, in microseconds. */
  static long atEnd() {
    Long after = EventTime.reached();
    return after == null ? UNKNOWN : Math.multiplyExact(after, MICROS);
  }

  /** The first watermark (ms) past a time. */
  static long past(long micros) {
    return Math.floorDiv(micros, MICROS) + 1;
  }

  /** The first watermark (ms) at or past a time. */
  static long reached(long micros) {
    return Math.floorDiv(micros + MICROS - 1, MICROS);
  }

  /** The sum, saturated at the largest or smallest number. */
  static long plus(long a, long b) {
    long sum = a + b;
    if (((a ^ sum) & (b ^ sum)) < 0) {
      return a < 0 ? Long.MIN_VALUE : Long.MAX_VALUE;
    }
    return sum;
  }

  /**
   * Ensures that the key has a timer at {@code due} (ms) or earlier. The timer is stored in {@code store}; one that is
   * earlier than needed stays, because moving it would cost more than one unnecessary call.
   */
  static void wake(StatefulProcessorHandle handle, JoinStore store, long due, long watermark) {
    long registered = store.timer();
    if (due == NEVER) {
      if (registered != JoinStore.NO_TIMER) {
        handle.deleteTimer(registered);
        store.timer(JoinStore.NO_TIMER);
      }
      return;
    }
    long ahead = Math.max(due, watermark == UNKNOWN ? CountedHandle.earliest(handle) : watermark / MICROS + 1);
    if (registered != JoinStore.NO_TIMER) {
      if (registered <= ahead) {
        return;
      }
      handle.deleteTimer(registered);
    }
    handle.registerTimer(ahead);
    store.timer(ahead);
  }
}
