package dev.penstock.kernel.log;

/**
 * When real time allows a job to start an epoch: at the ticks of EMIT EVERY, when rows expire, and after the gathering interval of a job that emits
 * nothing until a window closes. All waits use the monotonic clock; the wall clock only determines the ticks.
 */
final class EpochPace {
  private final long everyMs;
  private final long ttlMs;
  private final long gatherMs;
  private long[][] closings;
  private Deadline tick = Deadline.in(0);
  private Deadline gathered = Deadline.in(0);
  private Deadline sweep;

  /**
   * @param everyMs the time between two ticks, which are multiples of it; 0: an epoch may start at any time
   * @param ttlMs how long rows are kept; 0: for ever
   * @param gatherMs how long a job gathers rows after the start of an epoch; 0: not at all
   * @param closings the watermarks at which its windows close: pairs of a period and one such watermark
   */
  EpochPace(long everyMs, long ttlMs, long gatherMs, long[][] closings) {
    this.everyMs = everyMs;
    this.ttlMs = ttlMs;
    this.gatherMs = gatherMs;
    this.closings = closings;
    this.sweep = ttlMs > 0 ? Deadline.in(ttlMs) : null;
  }

  /** Sets the watermarks at which windows close; none: the job does not gather rows. */
  void closings(long[][] now) {
    closings = now;
  }

  /** Milliseconds for which the job may gather more rows; zero or less: none. */
  long gathers() {
    return gatherMs > 0 && closings.length > 0 ? gathered.left() : 0;
  }

  /** Whether a window closes between two watermarks. */
  boolean closes(long from, long to) {
    if (to == JobTime.NONE || from == to) {
      return false;
    }
    if (from == JobTime.NONE) {
      return true;
    }
    for (long[] c : closings) {
      if (Math.floorDiv(to - c[1], c[0]) > Math.floorDiv(from - c[1], c[0])) {
        return true;
      }
    }
    return false;
  }

  /** Milliseconds until an epoch may start; zero or less: now. */
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
    if (gatherMs > 0) {
      gathered = Deadline.in(gatherMs);
    }
    if (ttlMs > 0) {
      sweep = Deadline.in(ttlMs + 1);
    }
  }

  /** True once, when every row that has been read has expired. */
  boolean sweeps() {
    if (sweep == null || !sweep.passed()) {
      return false;
    }
    sweep = null;
    return true;
  }
}
