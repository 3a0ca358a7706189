package dev.penstock.kernel.log;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import dev.penstock.kernel.state.EventTime;
import dev.penstock.kernel.state.SlotSizes;
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
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Decides what the next epoch of a job contains. One per job, in the driver.
 *
 * <p>Spark asks each scan of a query for its latest offset in turn; the clock gives all scans of one round the same offset, so
 * that every epoch has whole commits and all scans have one watermark ({@link JobTime}).
 *
 * <p>A round without work returns immediately the first time, because Spark then checks whether the last epoch's
 * watermark requires a no-data batch; after that it blocks until the log grows or the poll timeout expires.
 */
public final class EpochClock {
  private static final Map<String, EpochClock> ALL = new ConcurrentHashMap<>();
  private static final ObjectMapper JSON = new ObjectMapper();
  /** The built-in object that always has one row. */
  private static final int UNIT = 0;
  /** The number of rows beyond which larger epochs do not reduce the cost per row. */
  private static final long GATHERED_ROWS = 50_000;

  private final LogIndex index;
  private final EpochInputs inputs;
  private final JobTime.Followed[] followed;
  private final boolean eventTime;
  private final long pollMs;
  private final long startLsn;
  private final EpochPace pace;
  private final Roster roster = new Roster();
  private final EpochProgress progress;
  private final StateLedger ledger;
  private final long stateLimit;

  private final Map<Integer, Contents> contents = new HashMap<>();
  private final Set<Integer> asked = new HashSet<>();
  /** LSNs at which an epoch must end. */
  private final TreeSet<Long> ends = new TreeSet<>();
  /** The end of the last recorded epoch, and the watermark that was in force in it. */
  private long recordedReach = -1;
  private long recordedWatermark = JobTime.NONE;
  /** The LSN up to which epochs may read. */
  private long held = Long.MAX_VALUE;
  private LogOffset initial;
  private LogOffset target;
  /** When the target was chosen, by the monotonic clock; 0: it was not, or {@link #age} has been read. */
  private long chosen;
  /** The LSN that {@link #awaitSettled} waits for. */
  private long wanted;
  private boolean looked;
  private boolean resume;

  private EpochClock(JsonNode spec) {
    index = LogIndex.of(spec.get("database").asText());
    int[] objects = new int[spec.get("objects").size()];
    for (int i = 0; i < objects.length; i++) {
      objects[i] = spec.get("objects").get(i).asInt();
    }
    followed = new JobTime.Followed[spec.get("timed").size()];
    for (int i = 0; i < followed.length; i++) {
      JsonNode t = spec.get("timed").get(i);
      followed[i] = new JobTime.Followed(t.get("object").asInt(), t.get("lagMs").asLong());
    }
    eventTime = spec.get("eventTime").asBoolean();
    inputs = new EpochInputs(index, objects, spec.get("maxRows").asLong());
    pollMs = spec.get("pollMs").asLong();
    startLsn = spec.get("start").asLong();
    pace = new EpochPace(
        spec.get("everyMs").asLong(), spec.path("ttlMs").asLong(), spec.path("gatherMs").asLong(),
        closings(spec.path("closings")));
    progress = new EpochProgress(eventTime, startLsn);
    List<StateSize> sizes = new ArrayList<>();
    for (JsonNode size : spec.path("sizes")) {
      sizes.add(StateSize.of(size.asLong()));
    }
    SlotSizes slots = spec.hasNonNull("slots") ? SlotSizes.of(spec.get("slots").asLong()) : null;
    ledger = new StateLedger(sizes, slots, Path.of(spec.path("ledger").asText()));
    stateLimit = spec.path("stateLimit").asLong();
  }

  private static long[][] closings(JsonNode told) {
    long[][] closings = new long[told.size()][];
    for (int i = 0; i < closings.length; i++) {
      closings[i] = new long[] {told.get(i).get(0).asLong(), told.get(i).get(1).asLong()};
    }
    return closings;
  }

  /** Creates the clock of a job, replacing an earlier one. */
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

  /** Limits the rows of later epochs; an epoch has at least one commit. */
  public void limit(long rows) {
    inputs.limit(rows);
  }

  /** Adds the contents of an object as of an LSN, to be read before its later log entries. */
  public void seed(int object, long lsn, int columns, String path, String slices) {
    inputs.seed(object, lsn, LogSlice.parse(path, lsn, columns, slices));
  }

  /** Contents of an object at an LSN. The job reads the object after this LSN, or the log still has the entries in between. */
  record Contents(long lsn, List<LogSlice> slices) {}

  /** Sets the contents of an object at an LSN, which are not read as input rows. */
  public void contents(int object, long lsn, int columns, String path, String slices) {
    synchronized (index) {
      contents.put(object, new Contents(lsn, LogSlice.parse(path, lsn, columns, slices)));
    }
  }

  Contents contents(int object) {
    synchronized (index) {
      return contents.get(object);
    }
  }

  /** The slices of an object in (after, upTo]; waits until the index has reached {@code upTo}. */
  List<LogSlice> changes(int object, long after, long upTo) {
    synchronized (index) {
      while (index.head() < upTo) {
        try {
          index.wait(pollMs);
        } catch (InterruptedException e) {
          throw new IllegalStateException("interrupted", e);
        }
      }
      return inputs.history(object, after, upTo);
    }
  }

  long goesOn(int slot, int object) {
    synchronized (index) {
      return roster.goesOn(slot, object);
    }
  }

  /** Notes that the log has the output of the job's last epoch, which read the commits in (after, reach] at a watermark. A replay must read exactly these, and end at no earlier watermark. */
  public void recorded(long after, long reach, long watermark) {
    synchronized (index) {
      ends.add(after);
      ends.add(reach);
      recordedReach = reach;
      recordedWatermark = watermark;
    }
  }

  /** Stops later epochs from reading beyond an LSN, so that two jobs can stop at the same one; negative: removes the limit. */
  public void hold(long lsn) {
    synchronized (index) {
      held = lsn < 0 ? Long.MAX_VALUE : lsn;
      index.notifyAll();
    }
  }

  // Members of a shared job

  /** Sets the contents of an object as of an LSN from which a member starts. Call it before {@link #join}. */
  public void seedOf(int slot, int object, long lsn, int columns, String path, String slices) {
    synchronized (index) {
      roster.seed(slot, object, lsn, LogSlice.parse(path, lsn, columns, slices));
    }
  }

  /**
   * Adds a member. Unless it has started before, it starts with the next epoch.
   *
   * @param layout the layout of its rows, see {@link PackedOutput}
   * @param limit the limit of its state in bytes; 0: none
   * @param closings the watermarks before which it emits nothing, as JSON; empty: it can emit at any time
   */
  public void join(int slot, String layout, long limit, String closings) throws IOException {
    synchronized (index) {
      roster.join(slot, layout, limit, closings(JSON.readTree(closings)));
      pace.closings(roster.closings());
      index.notifyAll();
    }
  }

  /** Removes a member. */
  public void leave(int slot) {
    synchronized (index) {
      roster.leave(slot);
      pace.closings(roster.closings());
      index.notifyAll();
    }
  }

  /** Notes that the state of a slot has been removed. */
  public void swept(int slot) {
    ledger.leave(slot);
  }

  /** The layouts of the members' rows, by slot. */
  Map<Integer, String> layouts() {
    synchronized (index) {
      return roster.layouts();
    }
  }

  // Called by Spark

  /** The offset at which a job without a checkpoint starts: that of its start LSN. */
  LogOffset initial() {
    synchronized (index) {
      if (initial == null) {
        initial = new LogOffset(startLsn, JobTime.at(followed, index, startLsn), List.of(), 0, 0);
      }
      return initial;
    }
  }

  /** An offset of this job, as it was written to Spark's offset log. */
  LogOffset parse(String json) {
    return LogOffset.parse(json, followed);
  }

  LogOffset latest(int scan, LogOffset start) throws InterruptedException {
    synchronized (index) {
      begin(start);
      if (target == null || asked.contains(scan)) {
        asked.clear();
        target = next(start);
        chosen = System.nanoTime();
      }
      asked.add(scan);
      return target;
    }
  }

  /** Milliseconds since the input of the epoch was chosen; -1 for a replayed epoch. */
  double age() {
    synchronized (index) {
      double ms = chosen == 0 ? -1 : (System.nanoTime() - chosen) / 1e6;
      chosen = 0;
      return ms;
    }
  }

  /** The slices of one object in (start, end], each with the watermark in force for its rows. */
  List<LogSlice> plan(int object, LogOffset start, LogOffset end) {
    synchronized (index) {
      begin(start);
      List<LogSlice> out = roster.slices(
          object, start, end, inputs, inputs.slices(object, start, end, Timeline.of(index, followed, start, end)),
          after -> Timeline.since(index, followed, after, end.lsn));
      progress.planned(object, start, end, object == UNIT ? 0 : out.stream().mapToLong(slice -> slice.rows).sum());
      return out;
    }
  }

  /** Notes that a checkpoint on disk covers everything up to an LSN and all members up to a slot. */
  public void durable(long lsn, int slot) {
    synchronized (index) {
      progress.durable(lsn);
      roster.durable(slot);
    }
  }

  /** Resumes the job after this offset, that of the last committed epoch. Spark does not pass it on when it replays an epoch that reads nothing. */
  public void resumeAfter(String offset) {
    resumeAfter(parse(offset));
  }

  void resumeAfter(LogOffset offset) {
    synchronized (index) {
      begin(offset);
    }
  }

  // The next epoch

  private void begin(LogOffset start) {
    if (!progress.begun()) {
      progress.begin(start);
      resume = start.wm() != JobTime.NONE;
      index.notifyAll();
    }
  }

  private LogOffset next(LogOffset base) throws InterruptedException {
    if (resume && eventTime) {
      // The epoch after a watermark may have been lost with the process; a beat makes Spark run one.
      resume = false;
      return beat(base);
    }
    Deadline poll = Deadline.in(pollMs);
    while (true) {
      long wait = poll.left();
      long tick = pace.left();
      if (tick <= 0) {
        Long end = end(base);
        long limit = Math.min(held, end == null ? index.head() : Math.min(end, index.head()));
        long head = inputs.bounded(base.lsn, limit);
        int slots = roster.ready(base.roster, limit);
        if (inputs.changed(base.lsn, head) || slots > base.roster || (end != null && behind(base, head))) {
          long reached = Math.max(head, roster.reach(base.roster, slots));
          LogOffset ahead = Timeline.advance(index, followed, base, reached, slots);
          ahead = behind(ahead, reached) ? ahead.at(recordedWatermark) : ahead;
          long gathers = slots > base.roster || end != null ? 0 : gathers(base, ahead);
          if (gathers <= 0) {
            looked = false;
            // Spark closes windows one epoch after their watermark: that epoch is a replay as well, and must not read what comes later.
            resume = reached == recordedReach && base.wm() < recordedWatermark;
            pace.begun();
            return ahead;
          }
          wait = Math.min(wait, gathers);
        } else if (pace.expires() && ownBeat(base)) {
          looked = false;
          return beat(base);
        }
      } else {
        wait = Math.min(wait, tick);
      }
      if (!looked) {
        looked = true;
        return base;
      }
      if (wait <= 0) {
        return base;
      }
      index.wait(wait);
    }
  }

  /** The LSN at which the next epoch must end; null: any. An epoch in which members started may have read nothing new. No epoch leads to an end that only members led to that have left since. */
  private Long end(LogOffset base) {
    if (ends.contains(base.lsn) && roster.ready(base.roster, base.lsn) > base.roster) {
      return base.lsn;
    }
    Long end = ends.higher(base.lsn);
    while (end != null && end <= index.head() && !leads(base, end)) {
      end = ends.higher(end);
    }
    return end;
  }

  private boolean leads(LogOffset base, long end) {
    return inputs.changed(base.lsn, end) || roster.ready(base.roster, end) > base.roster || behind(base, end);
  }

  /**
   * Whether an epoch up to here must advance the watermark further than the log says: to that of the last recorded epoch. The log may have dropped the entries without rows that moved it, because it keeps
   * only the newest of several in a row. Otherwise the next epoch, which is not recorded, would emit the same windows again.
   */
  private boolean behind(LogOffset at, long end) {
    return end == recordedReach && at.wm() < recordedWatermark;
  }

  /**
   * Milliseconds for which the next epoch can be delayed, because it would close no window and so emit nothing, and no caller waits for it. Zero or less: start it.
   */
  private long gathers(LogOffset base, LogOffset ahead) {
    long left = pace.gathers();
    boolean due = left <= 0
        || inputs.changed(base.lsn, wanted)
        || pace.closes(base.wm(), ahead.wm())
        || inputs.rows(base.lsn, ahead.lsn) >= GATHERED_ROWS;
    return due ? 0 : left;
  }

  private static LogOffset beat(LogOffset base) {
    return new LogOffset(base.lsn, base.time, List.of(), base.beat + 1, base.roster);
  }

  /**
   * A query with expiring rows runs without Spark's no-data batches, because Spark would run them without end. This
   * replaces them: it applies the watermark of the last epoch, and removes rows when the last of them has expired.
   */
  private boolean ownBeat(LogOffset base) {
    boolean behind = eventTime && base.wm() > progress.inForce() && base.wm() > -EventTime.SHIFT;
    return behind || pace.sweeps();
  }

  // Called by the sink

  /** Adds the changes of an epoch to the state sizes; true if Python has to check them. */
  boolean settleState(long epoch) {
    ledger.settle(epoch);
    if (stateLimit > 0 && ledger.bytes() >= stateLimit / 10 * 8) {
      return true;
    }
    synchronized (index) {
      return roster.large(ledger.slots());
    }
  }

  /** The input of the epoch that is being written, and the newest slot of a shared job that has started. */
  record Reach(long after, long lsn, long watermark, long beat, boolean idle, int roster, boolean news) {}

  /** The position of the output of the epoch that is being written, and whether it is new. */
  Reach reach() {
    synchronized (index) {
      return new Reach(
          progress.epochAfter(), progress.epochLsn(), progress.epochWatermark(),
          // Where rows expire by the wall clock, even an epoch without input and without a new watermark has output.
          pace.expires() ? progress.epochBeat() : 0,
          progress.epochIdle(), progress.epochRoster(), progress.tells());
    }
  }

  /** Notes that the output of the epoch is recorded. */
  void recorded() {
    synchronized (index) {
      progress.recorded();
      index.notifyAll();
    }
  }

  // Called by Python

  /** {@code slot, operator, rows, bytes} of each operator of each member of a shared job. */
  public long[] slots() {
    return ledger.slots();
  }

  /** {@code rows, bytes} of each operator. */
  public long[] state() {
    return ledger.totals();
  }

  /** No entry at or below this LSN will be read again, even after a restart. */
  public long durableLsn() {
    synchronized (index) {
      return Math.min(progress.durableLsn(), roster.needs());
    }
  }

  /** Waits until everything committed up to an LSN is in the job's output; false after the timeout. */
  public boolean awaitSettled(long lsn, long timeoutMs) throws InterruptedException {
    Deadline deadline = Deadline.in(timeoutMs);
    synchronized (index) {
      if (lsn > wanted) {
        wanted = lsn;
        index.notifyAll();
      }
      while (!settled(lsn)) {
        long wait = deadline.left();
        if (wait <= 0) {
          return false;
        }
        index.wait(wait);
      }
      return true;
    }
  }

  private boolean settled(long lsn) {
    if (!progress.begun()
        || index.head() < lsn
        || roster.last() > progress.committed().roster
        || inputs.changed(progress.committed().lsn, lsn)) {
      return false;
    }
    long wm = progress.committed().wm();
    // The earliest watermark closes nothing and requires no epoch.
    return !eventTime || progress.inForce() >= wm || wm <= -EventTime.SHIFT;
  }

  /** {@code lsn, watermark after, watermark in force} of the last recorded epoch, then the numbers of epochs and of input rows. */
  public long[] position() {
    synchronized (index) {
      return progress.position();
    }
  }
}
