package dev.penstock.kernel.log;

import java.util.HashMap;
import java.util.Map;

/** The current epoch of a job, and the recorded earlier ones. Not thread-safe: the owner must serialise calls. */
final class EpochProgress {
  private final boolean eventTime;
  private LogOffset committed;
  private LogOffset running;
  private LogOffset runningStart;
  private final Map<Integer, Long> runningRows = new HashMap<>();
  private long inForce = JobTime.NONE;
  private long durableLsn;
  private long rowsIn;
  private long epochs;
  private long toldWatermark = JobTime.NONE;
  private boolean toldIdle;

  /** @param eventTime whether operators of the job wait for the watermark and so delay its output */
  EpochProgress(boolean eventTime, long startLsn) {
    this.eventTime = eventTime;
    this.durableLsn = startLsn;
  }

  /** Starts at an offset, up to which everything was recorded before this process started. */
  void begin(LogOffset start) {
    committed = start;
  }

  boolean begun() {
    return committed != null;
  }

  /** The end of the last recorded epoch. */
  LogOffset committed() {
    return committed;
  }

  /** Notes that a scan of an epoch is planned; Spark may plan it more than once. */
  void planned(int object, LogOffset start, LogOffset end, long rows) {
    running = end;
    runningStart = start;
    runningRows.put(object, rows);
  }

  /** The LSN after which the epoch that is being written reads. */
  long epochAfter() {
    return running != null ? runningStart.lsn : committed.lsn;
  }

  long epochBeat() {
    return (running == null ? committed : running).beat;
  }

  long epochLsn() {
    return running != null ? running.lsn : committed.lsn;
  }

  /**
   * The watermark of the output of the epoch that is being written: the one in force during the epoch. A job without operators that wait
   * for time delays no rows, so its output has the watermark of its input at once.
   */
  long epochWatermark() {
    if (running == null) {
      return committed.wm();
    }
    return eventTime ? runningStart.wm() : running.wm();
  }

  int epochRoster() {
    return (running == null ? committed : running).roster;
  }

  /** Whether the output is idle after the epoch that is being written. While the watermark is not applied yet, another epoch follows. */
  boolean epochIdle() {
    LogOffset end = running == null ? committed : running;
    return end.time.idle() && epochWatermark() == end.wm();
  }

  /** Whether an epoch without rows must be recorded: its watermark or idle flag has changed, or members start with it. */
  boolean tells() {
    boolean begins = running != null && running.roster > runningStart.roster;
    boolean news = begins || epochWatermark() > toldWatermark || epochIdle() != toldIdle;
    toldWatermark = Math.max(toldWatermark, epochWatermark());
    toldIdle = epochIdle();
    return news;
  }

  /** Notes that the output of the epoch is in the log. */
  void recorded() {
    inForce = running != null ? runningStart.wm() : committed.wm();
    if (running != null) {
      committed = running;
      running = null;
    }
    for (long rows : runningRows.values()) {
      rowsIn += rows;
    }
    runningRows.clear();
    epochs++;
  }

  /** The watermark that was in force in the last recorded epoch. */
  long inForce() {
    return inForce;
  }

  void durable(long lsn) {
    durableLsn = Math.max(durableLsn, lsn);
  }

  long durableLsn() {
    return durableLsn;
  }

  /** {@code lsn, watermark after, watermark in force} of the last recorded epoch, then the numbers of epochs and of input rows. */
  long[] position() {
    long lsn = committed == null ? durableLsn : committed.lsn;
    long wm = committed == null ? JobTime.NONE : committed.wm();
    return new long[] {lsn, wm, inForce, epochs, rowsIn};
  }
}
