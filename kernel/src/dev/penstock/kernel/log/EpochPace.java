package dev.penstock.kernel.log;

/**
 * When a job may begin an epoch, as far as the clock on the wall decides: the ticks of EMIT EVERY, and when rows that expire are due to go.
 * All waits are on the monotonic clock; the wall clock only says where the ticks lie.
 */
final class EpochPace {
  private final long everyMs;
  private final long ttlMs;
  private Deadline tick = Deadline.in(0);
  private Deadline sweep;

  /**
   * @param everyMs the time between two ticks, which lie on multiples of it; 0: an epoch may begin at any time
   * @param ttlMs how long rows are kept by the wall clock; 0: for ever
   */
  EpochPace(long everyMs, long ttlMs) {
    this.everyMs = everyMs;
    this.ttlMs = ttlMs;
    this.sweep = ttlMs > 0 ? Deadline.in(ttlMs) : null;
  }

  /** Milliseconds until an epoch may begin; zero or less: now. */
  long left() {
    return everyMs > 0 ? tick.left() : 0;
  }

  /** Whether rows expire. */
  boolean expires() {
    return ttlMs > 0;
  }

  /** An epoch with rows begins now. */
  void begun() {
    if (everyMs > 0) {
      tick = Deadline.in(everyMs - Math.floorMod(System.currentTimeMillis(), everyMs));
    }
    if (ttlMs > 0) {
      sweep = Deadline.in(ttlMs + 1);
    }
  }

  /** True once when everything that had come when the last epoch began has expired. */
  boolean sweeps() {
    if (sweep == null || !sweep.passed()) {
      return false;
    }
    sweep = null;
    return true;
  }
}
