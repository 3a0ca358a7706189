package dev.penstock.kernel.log;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The driver's view of the commit log of one database: which slices of which files hold the rows of an object, by LSN.
 *
 * <p>Python adds entries in LSN order after they are durable; the commit may be acknowledged before. The index is also the monitor
 * on which epoch clocks wait for something to do.
 */
public final class LogIndex {

  private static final class Track {
    final LogTrack entries = new LogTrack();
    long watermark = Long.MIN_VALUE;
    long touched = System.currentTimeMillis();
  }

  private static final Map<String, LogIndex> ALL = new ConcurrentHashMap<>();

  private final Map<Integer, Track> tracks = new HashMap<>();
  private long head;

  private LogIndex() {}

  public static LogIndex of(String database) {
    return ALL.computeIfAbsent(database, d -> new LogIndex());
  }

  public static void drop(String database) {
    ALL.remove(database);
  }

  /**
   * Adds entries, one a line: {@code lsn TAB object TAB watermark-or-empty TAB columns TAB path TAB offset,length,rows;…}
   * and makes everything up to {@code newHead} visible.
   */
  public synchronized void add(String lines, long newHead) {
    for (String line : lines.split("\n")) {
      if (line.isEmpty()) {
        continue;
      }
      String[] f = line.split("\t", -1);
      long lsn = Long.parseLong(f[0]);
      int columns = Integer.parseInt(f[3]);
      long wm = f[2].isEmpty() ? Long.MIN_VALUE : Long.parseLong(f[2]);
      Track t = tracks.computeIfAbsent(Integer.parseInt(f[1]), k -> new Track());
      t.entries.add(lsn, wm, columns, f[4], LogSlice.parse(f[4], lsn, columns, f[5]));
      t.watermark = Math.max(t.watermark, wm);
      t.touched = System.currentTimeMillis();
    }
    head = Math.max(head, newHead);
    notifyAll();
  }

  /** Tells an object's watermark when its entries were trimmed before this process opened the log. */
  public synchronized void watermark(int object, long watermark) {
    Track t = tracks.computeIfAbsent(object, k -> new Track());
    t.watermark = Math.max(t.watermark, watermark);
  }

  /** Forgets entries at or below an LSN. */
  public synchronized void trim(int object, long lsn) {
    Track t = tracks.get(object);
    if (t != null) {
      t.entries.trim(lsn);
    }
  }

  public synchronized void forget(int object) {
    tracks.remove(object);
  }

  synchronized long head() {
    return head;
  }

  synchronized List<LogTrack.Entry> entries(int object, long after, long upTo) {
    Track t = tracks.get(object);
    return t == null ? List.of() : t.entries.entries(after, upTo);
  }

  synchronized boolean changed(int object, long after, long upTo) {
    Track t = tracks.get(object);
    return t != null && t.entries.changed(after, upTo);
  }

  /** The object's watermark when everything up to an LSN is counted; MIN_VALUE if it has none yet. */
  synchronized long watermarkAt(int object, long lsn) {
    Track t = tracks.get(object);
    if (t == null) {
      return Long.MIN_VALUE;
    }
    LogTrack.Entry e = t.entries.last(lsn);
    if (e != null) {
      return e.watermark;
    }
    return t.entries.isEmpty() ? t.watermark : Long.MIN_VALUE;
  }

  synchronized long touched(int object) {
    Track t = tracks.get(object);
    return t == null ? Long.MIN_VALUE : t.touched;
  }
}
