package dev.penstock.kernel.log;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** The input of a job: the entries of its objects in the log, and the initial contents of some of them. */
final class EpochInputs {
  /** The maximum number of entries without rows in an epoch. Its offset contains them, because a replay needs them. */
  private static final int MAX_MARKERS = 500;

  private final LogIndex index;
  private final int[] objects;
  private volatile long maxRows;
  private final Map<Integer, Long> seedLsn = new HashMap<>();
  private final Map<Integer, List<LogSlice>> seeds = new HashMap<>();

  EpochInputs(LogIndex index, int[] objects, long maxRows) {
    this.index = index;
    this.objects = objects;
    this.maxRows = maxRows;
  }

  /** Limits the rows of later epochs; an epoch has at least one commit. */
  void limit(long rows) {
    maxRows = rows;
  }

  /** Adds the contents of an object as of an LSN, to be read before its later log entries. */
  void seed(int object, long lsn, List<LogSlice> slices) {
    seedLsn.put(object, lsn);
    seeds.put(object, slices);
  }

  /** The slices of an object in (after, upTo], for a query that starts with this epoch. */
  List<LogSlice> history(int object, long after, long upTo) {
    List<LogSlice> out = new ArrayList<>();
    for (LogTrack.Entry e : index.entries(object, after, upTo)) {
      out.addAll(e.slices());
    }
    return out;
  }

  /** Whether there is anything to read in (after, upTo]. */
  boolean changed(long after, long upTo) {
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

  /** How many rows the log has in (after, upTo]. */
  long rows(long after, long upTo) {
    long rows = 0;
    for (int o : objects) {
      for (LogTrack.Entry e : index.entries(o, after, upTo)) {
        rows += e.rows;
      }
    }
    return rows;
  }

  /** The end of an epoch that starts after an LSN: after whole commits, within the row limit, but with all seeds. */
  long bounded(long after, long head) {
    long most = maxRows;
    long seeded = after;
    for (long l : seedLsn.values()) {
      seeded = Math.max(seeded, l);
    }
    TreeMap<Long, long[]> commits = new TreeMap<>();
    long rows = 0;
    long markers = 0;
    for (int o : objects) {
      for (LogTrack.Entry e : index.entries(o, after, head)) {
        long[] sums = commits.computeIfAbsent(e.lsn, lsn -> new long[2]);
        sums[0] += e.rows;
        sums[1] += e.rows == 0 ? 1 : 0;
        rows += e.rows;
        markers += e.rows == 0 ? 1 : 0;
      }
    }
    if (rows <= most && markers <= MAX_MARKERS) {
      return Math.max(seeded, head);
    }
    rows = 0;
    markers = 0;
    long last = after;
    for (Map.Entry<Long, long[]> commit : commits.entrySet()) {
      rows += commit.getValue()[0];
      markers += commit.getValue()[1];
      if ((rows > most || markers > MAX_MARKERS) && last > after) {
        break;
      }
      last = commit.getKey();
    }
    return Math.max(seeded, last);
  }

  /** The slices of one object in (start, end], each with the watermark in force for its rows. */
  List<LogSlice> slices(int object, LogOffset start, LogOffset end, Timeline line) {
    List<LogSlice> out = new ArrayList<>();
    long after = start.lsn;
    long seeded = seedLsn.getOrDefault(object, 0L);
    if (seeded > after) {
      seeds.get(object).forEach(slice -> out.add(slice.with(start.wm())));
      after = seeded;
    }
    for (LogTrack.Entry e : index.entries(object, after, end.lsn)) {
      e.slices().forEach(slice -> out.add(slice.with(line.before(object, slice))));
    }
    return out;
  }
}
