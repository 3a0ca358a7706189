package dev.penstock.kernel.log;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The entries of one object in the log, in LSN order. They are plain numbers, one run per file, because a source of single-row commits
 * has millions of them.
 *
 * <p>Consecutive entries without rows are merged if no object got rows in between. The newest represents all of them, from the LSN of the
 * first: an LSN in between has the later watermark, which affects no row, because there are none. If there are very many,
 * others are merged too; then a row may be compared with an earlier watermark.
 */
final class LogTrack {

  /** The maximum number of consecutive entries without rows: some hours at one per second. */
  private static final int MOST_MARKERS = 10_000;

  /** One object's part of one commit. */
  static final class Entry {
    final long lsn;
    final LogIndex.Mark mark;
    final long rows;
    private final Run run;
    private final long[] numbers;
    private final int at;

    private Entry(Run run, int i) {
      this.run = run;
      this.numbers = run.numbers;
      this.at = i * FIELDS;
      this.lsn = numbers[at + LSN];
      this.mark = run.mark(i);
      this.rows = numbers[at + ROWS];
    }

    /** The location of the rows. */
    List<LogSlice> slices() {
      if (rows == 0) {
        return List.of();
      }
      List<LogSlice> stored = run.stored.get(lsn);
      if (stored != null) {
        return stored;
      }
      int columns = (int) (numbers[at + FORM] & COLUMNS) >> 1;
      int length = (int) numbers[at + LENGTH];
      long check = (numbers[at + FORM] >>> CHECK_AT) - 1;
      return List.of(
          new LogSlice(run.path, lsn, numbers[at + PLACE], length, (int) rows, columns, check, JobTime.NONE));
    }
  }

  private static final int LSN = 0;
  private static final int WATERMARK = 1;
  /** The offset of the message or, without rows, the first LSN that the entry represents. */
  private static final int PLACE = 2;
  private static final int LENGTH = 3;
  private static final int ROWS = 4;
  /** From the lowest bit: the idle flag, the number of columns, the checksum of a single message plus one. */
  private static final int FORM = 5;
  private static final int CHECK_AT = 30;
  private static final long COLUMNS = (1L << CHECK_AT) - 1;
  private static final int FIELDS = 6;

  /** The entries in one file, at {@code [start, end)} of {@code numbers}. The numbers of an entry with rows never change. */
  private static final class Run {
    final String path;
    /** The slices of entries that have several, or one with its own watermark. */
    final Map<Long, List<LogSlice>> stored = new HashMap<>(0);
    long[] numbers = new long[FIELDS];
    int start;
    int end;

    Run(String path) {
      this.path = path;
    }

    long get(int i, int field) {
      return numbers[i * FIELDS + field];
    }

    LogIndex.Mark mark(int i) {
      return new LogIndex.Mark(get(i, WATERMARK), (get(i, FORM) & 1) == 1);
    }

    /** The first LSN that an entry represents. */
    long from(int i) {
      return get(i, ROWS) == 0 ? get(i, PLACE) : get(i, LSN);
    }

    /** The first entry after an LSN. */
    int firstAfter(long lsn) {
      int low = start;
      int high = end;
      while (low < high) {
        int mid = (low + high) >>> 1;
        if (get(mid, LSN) <= lsn) {
          low = mid + 1;
        } else {
          high = mid;
        }
      }
      return low;
    }

    void add(long... entry) {
      if ((end + 1) * FIELDS > numbers.length) {
        numbers = Arrays.copyOf(numbers, Math.max(end + 8, end + (end >> 2)) * FIELDS);
      }
      System.arraycopy(entry, 0, numbers, end * FIELDS, FIELDS);
      end++;
    }

    void dropBefore(int i) {
      if (!stored.isEmpty()) {
        for (int gone = start; gone < i; gone++) {
          stored.remove(get(gone, LSN));
        }
      }
      start = i;
      if (start > end - start) {
        // Entries returned earlier still use the old array.
        numbers = Arrays.copyOfRange(numbers, start * FIELDS, end * FIELDS);
        end -= start;
        start = 0;
      }
    }
  }

  private final List<Run> runs = new ArrayList<>();
  private LogIndex.Mark before = LogIndex.Mark.NONE;
  private int markers;
  private long newest;

  /** Whether an LSN is above those of all entries so far. An object has one entry per commit. */
  boolean isNew(long lsn) {
    return lsn > newest;
  }

  /** Sets the event time of the object before its first entry. */
  void before(LogIndex.Mark mark) {
    before = mark;
  }

  /** Adds the newest entry. {@code slices} are its messages in the file. */
  void add(long lsn, LogIndex.Mark mark, int columns, String path, List<LogSlice> slices) {
    newest = lsn;
    markers = 0;
    long rows = 0;
    for (LogSlice s : slices) {
      rows += s.rows;
    }
    LogSlice first = slices.get(0);
    Run run = run(path);
    long form = form(columns, mark) | first.check + 1 << CHECK_AT;
    run.add(lsn, mark.watermark(), first.offset, first.length, rows, form);
    if (slices.size() > 1 || first.before != JobTime.NONE) {
      run.stored.put(lsn, slices);
    }
  }

  /** Adds the newest entry, which has no rows. {@code lastRows} is the last commit in which any object got rows. */
  void add(long lsn, LogIndex.Mark mark, int columns, String path, long lastRows) {
    newest = lsn;
    long place = lsn;
    if (markers > 0) {
      Run last = runs.get(runs.size() - 1);
      if (last.get(last.end - 1, LSN) > lastRows || markers == MOST_MARKERS) {
        place = last.get(last.end - 1, PLACE);
        withoutLast(last);
        markers--;
      }
    }
    markers++;
    run(path).add(lsn, mark.watermark(), place, 0, 0, form(columns, mark));
  }

  private static long form(int columns, LogIndex.Mark mark) {
    return (long) columns << 1 | (mark.idle() ? 1 : 0);
  }

  /** The last run, which is that of this file. */
  private Run run(String path) {
    Run last = runs.isEmpty() ? null : runs.get(runs.size() - 1);
    if (last == null || !last.path.equals(path)) {
      last = new Run(path);
      runs.add(last);
    }
    return last;
  }

  /** Removes the last entry. */
  private void withoutLast(Run last) {
    last.end--;
    if (last.end == last.start) {
      runs.remove(runs.size() - 1);
    }
  }

  /** Removes entries at or below an LSN. */
  void trim(long lsn) {
    while (!runs.isEmpty()) {
      Run first = runs.get(0);
      int after = first.firstAfter(lsn);
      if (after > first.start) {
        before = first.mark(after - 1);
      }
      if (after < first.end) {
        first.dropBefore(after);
        break;
      }
      runs.remove(0);
    }
    markers = runs.isEmpty() ? 0 : markers;
  }

  /** The entries in {@code (after, upTo]}. */
  List<Entry> entries(long after, long upTo) {
    List<Entry> out = new ArrayList<>();
    for (int r = firstRunAfter(after); r < runs.size(); r++) {
      Run run = runs.get(r);
      for (int i = run.firstAfter(after); i < run.end && run.get(i, LSN) <= upTo; i++) {
        out.add(new Entry(run, i));
      }
    }
    return out;
  }

  /** Whether there are entries in {@code (after, upTo]}. */
  boolean changed(long after, long upTo) {
    int r = firstRunAfter(after);
    if (r == runs.size()) {
      return false;
    }
    Run run = runs.get(r);
    return run.from(run.firstAfter(after)) <= upTo;
  }

  /** The event time of the object at an LSN. */
  LogIndex.Mark markAt(long lsn) {
    for (int r = runs.size() - 1; r >= 0; r--) {
      Run run = runs.get(r);
      int i = run.firstAfter(lsn);
      if (i < run.end && run.from(i) <= lsn) {
        return run.mark(i);
      }
      if (i > run.start) {
        return run.mark(i - 1);
      }
    }
    return before;
  }

  private int firstRunAfter(long lsn) {
    int low = 0;
    int high = runs.size();
    while (low < high) {
      int mid = (low + high) >>> 1;
      Run run = runs.get(mid);
      if (run.get(run.end - 1, LSN) <= lsn) {
        low = mid + 1;
      } else {
        high = mid;
      }
    }
    return low;
  }
}
