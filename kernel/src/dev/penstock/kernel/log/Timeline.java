package dev.penstock.kernel.log;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** The event time of a job, commit by commit, in (start, end]: which watermark was in force for the rows of each commit. */
final class Timeline {
  private final JobTime start;
  private final TreeMap<Long, JobTime> after = new TreeMap<>();

  /** @param markers the entries without rows that moved the time, by LSN */
  private Timeline(
      LogIndex index, JobTime.Followed[] followed, LogOffset from, long to, List<LogOffset.Marker> markers) {
    start = from.time;
    TreeMap<Long, Map<Integer, LogIndex.Mark>> commits = new TreeMap<>();
    for (LogOffset.Marker m : markers) {
      commits.computeIfAbsent(m.lsn(), lsn -> new HashMap<>(2)).put(m.object(), m.mark());
    }
    for (JobTime.Followed f : followed) {
      for (LogTrack.Entry e : index.entries(f.object(), from.lsn, to)) {
        if (e.rows > 0) {
          commits.computeIfAbsent(e.lsn, lsn -> new HashMap<>(2)).put(f.object(), e.mark);
        }
      }
    }
    commits.forEach((lsn, parts) -> {
      JobTime before = end();
      JobTime now = before.after(parts);
      if (now != before) {
        after.put(lsn, now);
      }
    });
  }

  /** The time of an epoch. */
  static Timeline of(LogIndex index, JobTime.Followed[] followed, LogOffset start, LogOffset end) {
    return new Timeline(index, followed, start, end.lsn, end.markers);
  }

  /** The time in (after, to], from the current log. */
  static Timeline since(LogIndex index, JobTime.Followed[] followed, long after, long to) {
    LogOffset from = new LogOffset(after, JobTime.at(followed, index, after), List.of(), 0, 0);
    return of(index, followed, from, advance(index, followed, from, to, 0));
  }

  /** The offset of an epoch that continues from another one up to an LSN. */
  static LogOffset advance(LogIndex index, JobTime.Followed[] followed, LogOffset from, long to, int roster) {
    List<LogOffset.Marker> markers = new ArrayList<>();
    for (JobTime.Followed f : followed) {
      for (LogTrack.Entry e : index.entries(f.object(), from.lsn, to)) {
        if (e.rows == 0) {
          markers.add(new LogOffset.Marker(e.lsn, f.object(), e.mark));
        }
      }
    }
    Timeline line = new Timeline(index, followed, from, to, markers);
    return new LogOffset(to, line.end(), markers, from.beat, roster);
  }

  private JobTime end() {
    return after.isEmpty() ? start : after.lastEntry().getValue();
  }

  /**
   * The watermark in force for the rows of a slice: the job's as of the commit before. A slice of a stream may contain rows of a later moment of the
   * stream's own job, and then has its own watermark.
   */
  long before(int object, LogSlice slice) {
    Map.Entry<Long, JobTime> known = after.lowerEntry(slice.lsn);
    JobTime time = known == null ? start : known.getValue();
    return slice.before == JobTime.NONE ? time.watermark : time.watermarkIf(object, slice.before);
  }
}
