package dev.penstock.kernel.log;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import dev.penstock.kernel.state.EventTime;
import dev.penstock.kernel.state.StateLedger;
import dev.penstock.kernel.state.StateSize;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Decides, for one job, what its next epoch holds. One per job, in the driver.
 *
 * <p>Spark asks each scan of a query for its latest offset in turn; the clock gives all scans of one round the same offset, so
 * that no epoch holds half a commit and all scans carry one watermark: the smallest over the job's timed objects, each minus its
 * lag, leaving out those that have been idle for longer than they may. The watermark never goes back.
 *
 * <p>A round in which there is nothing to do returns at once the first time, because Spark then looks whether the last epoch's
 * watermark calls for an epoch without data; after that it blocks until the log grows or the poll time is over.
 */
public final class EpochClock {

  private static final class Timed {
    final int object;
    final long lagMs;
    final long idleMs;

    Timed(int object, long lagMs, long idleMs) {
      this.object = object;
      this.lagMs = lagMs;
      this.idleMs = idleMs;
    }
  }

  private static final Map<String, EpochClock> ALL = new ConcurrentHashMap<>();
  private static final ObjectMapper JSON = new ObjectMapper();

  private final LogIndex index;
  private final int[] objects;
  private final List<Timed> timed = new ArrayList<>();
  private final boolean eventTime;
  private final long maxRows;
  private final long pollMs;
  private final long everyMs;
  private final long ttlMs;
  private final StateLedger ledger;
  private final long stateLimit;
  private final LogOffset initial;
  private final long created = System.currentTimeMillis();
  private final Map<Integer, Long> seedLsn = new HashMap<>();
  private final Map<Integer, List<LogSlice>> seeds = new HashMap<>();

  private final Set<Integer> asked = new HashSet<>();
  private LogOffset target;
  private boolean idle;
  private boolean started;
  private boolean resume;
  private long lastTick;
  private long sweepAt;
  private boolean halted;

  private LogOffset running;
  private LogOffset runningStart;
  private LogOffset committed;
  private long inForce = LogOffset.NO_WATERMARK;
  private long durableLsn;
  private long rowsIn;
  private final Map<Integer, Long> runningRows = new HashMap<>();
  private long epochs;
  private long told = LogOffset.NO_WATERMARK;

  private EpochClock(JsonNode spec) {
    index = LogIndex.of(spec.get("database").asText());
    objects = new int[spec.get("objects").size()];
    for (int i = 0; i < objects.length; i++) {
      objects[i] = spec.get("objects").get(i).asInt();
    }
    for (JsonNode t : spec.get("timed")) {
      timed.add(new Timed(t.get("object").asInt(), t.get("lagMs").asLong(), t.get("idleMs").asLong()));
    }
    eventTime = spec.get("eventTime").asBoolean();
    maxRows = spec.get("maxRows").asLong();
    pollMs = spec.get("pollMs").asLong();
    everyMs = spec.get("everyMs").asLong();
    ttlMs = spec.path("ttlMs").asLong();
    List<StateSize> sizes = new ArrayList<>();
    for (JsonNode size : spec.path("sizes")) {
      sizes.add(StateSize.of(size.asLong()));
    }
    ledger = new StateLedger(sizes, Path.of(spec.path("ledger").asText()));
    stateLimit = spec.path("stateLimit").asLong();
    initial = new LogOffset(spec.get("start").asLong(), LogOffset.NO_WATERMARK, 0);
    committed = initial;
    durableLsn = initial.lsn;
  }

  /** Makes the clock of a job anew. */
  public static EpochClock create(String job, String spec) {
    try {
      EpochClock clock = new EpochClock(JSON.readTree(spec));
      ALL.put(job, clock);
      return clock;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  static EpochClock of(String job) {
    EpochClock clock = ALL.get(job);
    if (clock == null) {
      throw new IllegalStateException("no epoch clock for job " + job);
    }
    return clock;
  }

  public static void drop(String job) {
    ALL.remove(job);
  }

  /** Contents of an object as of an LSN, read before what the log has after it. */
  public void seed(int object, long lsn, int columns, String path, String slices) {
    seedLsn.put(object, lsn);
    seeds.put(object, LogSlice.parse(path, lsn, columns, slices));
  }

  /** Where a job without a checkpoint begins: after everything up to the LSN that it was given. */
  LogOffset initial() {
    return initial;
  }

  LogOffset latest(int scan, LogOffset start) throws InterruptedException {
    synchronized (index) {
      begin(start);
      if (target == null || asked.contains(scan)) {
        asked.clear();
        target = next(start);
      }
      asked.add(scan);
      return target;
    }
  }

  private void begin(LogOffset start) {
    if (!started) {
      started = true;
      committed = start;
      resume = start.wm != LogOffset.NO_WATERMARK;
      sweepAt = System.currentTimeMillis() + ttlMs;
      index.notifyAll();
    }
  }

  private LogOffset next(LogOffset base) throws InterruptedException {
    if (resume && eventTime) {
      // The epoch that follows a watermark may have been lost with the process; a beat makes Spark run one.
      resume = false;
      return new LogOffset(base.lsn, base.wm, base.beat + 1);
    }
    long deadline = System.currentTimeMillis() + pollMs;
    while (true) {
      long wait = deadline - System.currentTimeMillis();
      long tick = everyMs > 0 ? lastTick + everyMs - System.currentTimeMillis() : 0;
      if (tick <= 0 && !halted) {
        long head = bounded(base.lsn, index.head());
        long wm = Math.max(base.wm, watermark(head));
        if (changed(base.lsn, head) || wm > base.wm) {
          idle = false;
          if (everyMs > 0) {
            lastTick = System.currentTimeMillis() / everyMs * everyMs;
          }
          sweepAt = System.currentTimeMillis() + ttlMs + 1;
          return new LogOffset(head, wm, base.beat);
        }
        if (ttlMs > 0 && ownBeat(base)) {
          idle = false;
          return new LogOffset(base.lsn, base.wm, base.beat + 1);
        }
      } else if (!halted) {
        wait = Math.min(wait, tick);
      }
      if (!idle) {
        idle = true;
        return base;
      }
      if (wait <= 0) {
        return base;
      }
      index.wait(wait);
    }
  }

  /**
   * A query with rows that expire is run without Spark's epochs without data, because it would have no end of them. What they are good for is
   * done here: the watermark of the last epoch comes into force, and rows go when the last of them has expired.
   */
  private boolean ownBeat(LogOffset base) {
    if (eventTime && base.wm > inForce && base.wm > -EventTime.SHIFT) {
      return true;
    }
    if (sweepAt > 0 && System.currentTimeMillis() >= sweepAt) {
      sweepAt = 0;
      return true;
    }
    return false;
  }

  private boolean changed(long after, long upTo) {
    for (int o : objects) {
      if (seedLsn.getOrDefault(o, 0L) > after && !seeds.get(o).isEmpty()) {
        return true;
      }
      if (index.changed(o, after, upTo)) {
        return true;
      }
    }
    return false;
  }

  private long bounded(long after, long head) {
    long seeded = after;
    for (long l : seedLsn.values()) {
      seeded = Math.max(seeded, l);
    }
    TreeMap<Long, Long> rows = new TreeMap<>();
    long total = 0;
    for (int o : objects) {
      for (LogTrack.Entry e : index.entries(o, after, head)) {
        rows.merge(e.lsn, e.rows, Long::sum);
        total += e.rows;
      }
    }
    if (total <= maxRows) {
      return Math.max(seeded, head);
    }
    long sum = 0;
    long last = after;
    for (Map.Entry<Long, Long> e : rows.entrySet()) {
      sum += e.getValue();
      if (sum > maxRows && last > after) {
        break;
      }
      last = e.getKey();
    }
    return Math.max(seeded, last);
  }

  private long watermark(long lsn) {
    long now = System.currentTimeMillis();
    long min = Long.MAX_VALUE;
    for (Timed t : timed) {
      long since = Math.max(created, index.touched(t.object));
      if (t.idleMs > 0 && now - since > t.idleMs) {
        continue;
      }
      long wm = index.watermarkAt(t.object, lsn);
      if (wm == Long.MIN_VALUE) {
        return LogOffset.NO_WATERMARK;
      }
      min = Math.min(min, wm - t.lagMs);
    }
    return min == Long.MAX_VALUE ? LogOffset.NO_WATERMARK : min;
  }

  /** The slices of one object in (start, end], and what tasks need to know of the epoch. */
  List<LogSlice> plan(int object, LogOffset start, LogOffset end) {
    synchronized (index) {
      begin(start);
      running = end;
      runningStart = start;
      long after = start.lsn;
      List<LogSlice> out = new ArrayList<>();
      long seeded = seedLsn.getOrDefault(object, 0L);
      if (seeded > after) {
        out.addAll(seeds.get(object));
        after = seeded;
      }
      for (LogTrack.Entry e : index.entries(object, after, end.lsn)) {
        out.addAll(e.slices());
      }
      // Spark may plan a scan of an epoch more than once.
      runningRows.put(object, out.stream().mapToLong(slice -> slice.rows).sum());
      return out;
    }
  }

  /** Takes in what an epoch has changed in the state of its operators; true if Python has to look at it. */
  boolean settleState(long epoch) {
    ledger.settle(epoch);
    return stateLimit > 0 && ledger.bytes() >= stateLimit / 10 * 8;
  }

  /** {@code rows, bytes} of each operator. */
  public long[] state() {
    return ledger.totals();
  }

  /** Called by the sink when an epoch's output is recorded. */
  void recorded() {
    synchronized (index) {
      if (running != null) {
        inForce = runningStart.wm;
        committed = running;
        running = null;
      } else {
        inForce = committed.wm;
      }
      for (long rows : runningRows.values()) {
        rowsIn += rows;
      }
      runningRows.clear();
      epochs++;
      index.notifyAll();
    }
  }

  /**
   * The watermark that the output has with the epoch that is being written now: the one in force in it. A job without operators that wait
   * for time holds no row back, so its output has at once what its input has.
   */
  long epochWatermark() {
    synchronized (index) {
      if (running == null) {
        return committed.wm;
      }
      return eventTime ? runningStart.wm : running.wm;
    }
  }

  /** Whether an epoch without rows is worth recording: its watermark is news. */
  boolean tells(long wm) {
    synchronized (index) {
      boolean news = wm > told;
      told = Math.max(told, wm);
      return news;
    }
  }

  long epochLsn() {
    synchronized (index) {
      return running != null ? running.lsn : committed.lsn;
    }
  }

  void durable(LogOffset end) {
    synchronized (index) {
      durableLsn = Math.max(durableLsn, end.lsn);
    }
  }

  /** No entry at or below this LSN will be read again, also after a restart. */
  public long durableLsn() {
    synchronized (index) {
      return durableLsn;
    }
  }

  /** Waits until everything committed up to an LSN is in the job's output; false when the time is over. */
  public boolean awaitSettled(long lsn, long timeoutMs) throws InterruptedException {
    long deadline = System.currentTimeMillis() + timeoutMs;
    synchronized (index) {
      while (!settled(lsn)) {
        long wait = deadline - System.currentTimeMillis();
        if (wait <= 0) {
          return false;
        }
        index.wait(wait);
      }
      return true;
    }
  }

  private boolean settled(long lsn) {
    if (!started || index.head() < lsn || changed(committed.lsn, lsn)) {
      return false;
    }
    if (!eventTime) {
      return watermark(lsn) <= committed.wm;
    }
    // A watermark before all time closes nothing and calls for no epoch.
    return watermark(lsn) <= committed.wm && (inForce >= committed.wm || committed.wm <= -EventTime.SHIFT);
  }

  /**
   * Lets no further epoch begin and waits until the last one is recorded; its LSN, or -1 when the time is over. Whoever goes on from
   * that LSN misses nothing and repeats nothing.
   */
  public long quiesce(long timeoutMs) throws InterruptedException {
    long deadline = System.currentTimeMillis() + timeoutMs;
    synchronized (index) {
      halted = true;
      index.notifyAll();
      while (started && (running != null || target == null || target.lsn != committed.lsn || target.wm != committed.wm)) {
        long wait = deadline - System.currentTimeMillis();
        if (wait <= 0) {
          halted = false;
          return -1;
        }
        index.wait(Math.min(wait, 20));
      }
      return committed.lsn;
    }
  }

  /** {@code lsn, watermark after, watermark in force} of the last recorded epoch, and how many epochs and rows of input there were. */
  public long[] position() {
    synchronized (index) {
      return new long[] {committed.lsn, committed.wm, inForce, epochs, rowsIn};
    }
  }
}
