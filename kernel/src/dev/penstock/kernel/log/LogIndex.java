package dev.penstock.kernel.log;

import java.util.ArrayList;
import java.util.Collections;
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

  /** One object's part of one commit. {@code watermark} is {@link Long#MIN_VALUE} where the part has none. */
  static final class Entry {
    final long lsn;
    final long watermark;
    final int columns;
    final long rows;
    final List<LogSlice> slices;

    Entry(long lsn, long watermark, int columns, long rows, List<LogSlice> slices) {
      this.lsn = lsn;
      this.watermark = watermark;
      this.columns = columns;
      this.rows = rows;
      this.slices = slices;
    }
  }

  private static final class Track {
    final List<Entry> entries = new ArrayList<>();
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
      int columns = Integer.parseInt(f[3]);
      List<LogSlice> slices = LogSlice.parse(f[4], Long.parseLong(f[0]), columns, f[5]);
      long rows = 0;
      for (LogSlice s : slices) {
        rows += s.rows;
      }
      long wm = f[2].isEmpty() ? Long.MIN_VALUE : Long.parseLong(f[2]);
      Track t = tracks.computeIfAbsent(Integer.parseInt(f[1]), k -> new Track());
      t.entries.add(new Entry(Long.parseLong(f[0]), wm, columns, rows, slices));
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
      t.entries.subList(0, firstAfter(t.entries, lsn)).clear();
    }
  }

  public synchronized void forget(int object) {
    tracks.remove(object);
  }

  synchronized long head() {
    return head;
  }

  synchronized List<Entry> entries(int object, long after, long upTo) {
    Track t = tracks.get(object);
    if (t == null) {
      return Collections.emptyList();
    }
    return new ArrayList<>(t.entries.subList(firstAfter(t.entries, after), firstAfter(t.entries, upTo)));
  }

  synchronized boolean changed(int object, long after, long upTo) {
    Track t = tracks.get(object);
    return t != null && firstAfter(t.entries, after) < firstAfter(t.entries, upTo);
  }

  /** The object's watermark when everything up to an LSN is counted; MIN_VALUE if it has none yet. */
  synchronized long watermarkAt(int object, long lsn) {
    Track t = tracks.get(object);
    if (t == null) {
      return Long.MIN_VALUE;
    }
    for (int i = t.entries.size() - 1; i >= 0; i--) {
      Entry e = t.entries.get(i);
      if (e.lsn <= lsn) {
        return e.watermark == Long.MIN_VALUE && i == t.entries.size() - 1 ? t.watermark : e.watermark;
      }
    }
    return t.entries.isEmpty() ? t.watermark : Long.MIN_VALUE;
  }

  synchronized long touched(int object) {
    Track t = tracks.get(object);
    return t == null ? Long.MIN_VALUE : t.touched;
  }

  private static int firstAfter(List<Entry> entries, long lsn) {
    int low = 0;
    int high = entries.size();
    while (low < high) {
      int mid = (low + high) >>> 1;
      if (entries.get(mid).lsn <= lsn) {
        low = mid + 1;
      } else {
        high = mid;
      }
    }
    return low;
  }
}
