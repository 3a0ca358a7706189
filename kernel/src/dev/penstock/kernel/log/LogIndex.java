package dev.penstock.kernel.log;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The driver's view of the commit log of one database: which slices of which files hold the rows of an object, by LSN.
 *
 * <p>Python adds entries in LSN order once they are durable; it may acknowledge the commit earlier. The index is also the monitor
 * on which epoch clocks wait for work.
 */
public final class LogIndex {

  /** An object's event time after one of its entries: its watermark, and whether it is idle, so that it does not hold back readers. */
  record Mark(long watermark, boolean idle) {
    static final Mark NONE = new Mark(JobTime.NONE, false);
  }

  private static final Map<String, LogIndex> ALL = new ConcurrentHashMap<>();

  private final Map<Integer, LogTrack> tracks = new HashMap<>();
  private long head;
  private long lastRows;

  private LogIndex() {}

  public static LogIndex of(String database) {
    return ALL.computeIfAbsent(database, d -> new LogIndex());
  }

  public static void drop(String database) {
    ALL.remove(database);
  }

  /**
   * Adds entries, one per line: {@code lsn TAB object TAB watermark-or-empty TAB idle (1 or 0) TAB columns TAB path TAB
   * offset,length,rows[,check-or-empty[,before]];…} and makes everything up to {@code newHead} visible. Known entries are skipped, because the caller repeats
   * a call that was not answered.
   */
  public synchronized void add(String lines, long newHead) {
    for (String line : lines.split("\n")) {
      if (line.isEmpty()) {
        continue;
      }
      String[] f = line.split("\t", -1);
      long lsn = Long.parseLong(f[0]);
      int columns = Integer.parseInt(f[4]);
      Mark mark = new Mark(f[2].isEmpty() ? JobTime.NONE : Long.parseLong(f[2]), f[3].equals("1"));
      LogTrack track = tracks.computeIfAbsent(Integer.parseInt(f[1]), k -> new LogTrack());
      if (!track.isNew(lsn)) {
        continue;
      }
      if (f[6].isEmpty()) {
        track.add(lsn, mark, columns, f[5], lastRows);
      } else {
        track.add(lsn, mark, columns, f[5], LogSlice.parse(f[5], lsn, columns, f[6]));
        lastRows = Math.max(lastRows, lsn);
      }
    }
    head = Math.max(head, newHead);
    notifyAll();
  }

  /** Sets the watermark of an object whose entries were all trimmed before this process opened the log. */
  public synchronized void trimmed(int object, long watermark) {
    tracks.computeIfAbsent(object, k -> new LogTrack()).before(new Mark(watermark, false));
  }

  /** Removes entries at or below an LSN. */
  public synchronized void trim(int object, long lsn) {
    LogTrack track = tracks.get(object);
    if (track != null) {
      track.trim(lsn);
    }
  }

  public synchronized void forget(int object) {
    tracks.remove(object);
  }

  synchronized long head() {
    return head;
  }

  synchronized List<LogTrack.Entry> entries(int object, long after, long upTo) {
    LogTrack track = tracks.get(object);
    return track == null ? List.of() : track.entries(after, upTo);
  }

  synchronized boolean changed(int object, long after, long upTo) {
    LogTrack track = tracks.get(object);
    return track != null && track.changed(after, upTo);
  }

  /** The object's event time at an LSN, as far as the log still has it. */
  synchronized Mark markAt(int object, long lsn) {
    LogTrack track = tracks.get(object);
    return track == null ? Mark.NONE : track.markAt(lsn);
  }
}
