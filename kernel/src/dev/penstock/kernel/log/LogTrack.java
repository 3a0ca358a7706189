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
 * <p>Of consecutive entries without rows only the newest is kept, with the LSN of the first. At an LSN in between, the later watermark
 * counts; the object has no row there that it could make late.
 */
final class LogTrack {

  /** One object's part of one commit. {@code watermark} is {@link Long#MIN_VALUE} where the part has none. */
  static final class Entry {
    final long lsn;
    final long watermark;
    final long rows;
    private final Run run;
    private final long[] numbers;
    private final int at;

    private Entry(Run run, int i) {
      this.run = run;
      this.numbers = run.numbers;
      this.at = i * FIELDS;
      this.lsn = numbers[at + LSN];
      this.watermark = numbers[at + WATERMARK];
      this.rows = numbers[at + ROWS];
    }

    /** Where the rows are. */
    List<LogSlice> slices() {
      if (rows == 0) {
        return List.of();
      }
      int columns = (int) numbers[at + COLUMNS];
      List<LogSlice> several = run.several.get(lsn);
      return several != null
          ? several
          : List.of(new LogSlice(run.path, lsn, numbers[at + PLACE], (int) numbers[at + LENGTH], (int) rows, columns));
    }
  }

  private static final int LSN = 0;
  private static final int WATERMARK = 1;
  /** The offset of the message, or, without rows, the first LSN that the entry stands for. */
  private static final int PLACE = 2;
  private static final int LENGTH = 3;
  private static final int ROWS = 4;
  private static final int COLUMNS = 5;
  private static final int FIELDS = 6;

  /** The entries in one file, at {@code [start, end)} of {@code numbers}. The numbers of an entry with rows never change. */
  private static final class Run {
    final String path;
    final Map<Long, List<LogSlice>> several = new HashMap<>(0);
    long[] numbers = new long[FIELDS];
    int start;
    int end;

    Run(String path) {
      this.path = path;
    }

    long get(int i, int field) {
      return numbers[i * FIELDS + field];
    }

    /** The LSN from which an entry counts. */
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
      if (!several.isEmpty()) {
        for (int gone = start; gone < i; gone++) {
          several.remove(get(gone, LSN));
        }
      }
      start = i;
      if (start > end - start) {
        // Entries that were handed out keep the old numbers.
        numbers = Arrays.copyOfRange(numbers, start * FIELDS, end * FIELDS);
        end -= start;
        start = 0;
      }
    }
  }

  private final List<Run> runs = new ArrayList<>();

  boolean isEmpty() {
    return runs.isEmpty();
  }

  /** Adds the newest entry. {@code slices} are its messages in the file. */
  void add(long lsn, long watermark, int columns, String path, List<LogSlice> slices) {
    long rows = 0;
    for (LogSlice s : slices) {
      rows += s.rows;
    }
    long place = slices.isEmpty() ? lsn : slices.get(0).offset;
    Run last = runs.isEmpty() ? null : runs.get(runs.size() - 1);
    if (rows == 0 && last != null && last.get(last.end - 1, ROWS) == 0) {
      place = last.get(last.end - 1, PLACE);
      last = withoutLast(last);
    }
    if (last == null || !last.path.equals(path)) {
      last = new Run(path);
      runs.add(last);
    }
    last.add(lsn, watermark, place, slices.isEmpty() ? 0 : slices.get(0).length, rows, columns);
    if (slices.size() > 1) {
      last.several.put(lsn, slices);
    }
  }

  /** Takes the last entry away; the run that is the last one then, if there is one. */
  private Run withoutLast(Run last) {
    last.end--;
    if (last.end == last.start) {
      runs.remove(runs.size() - 1);
      return runs.isEmpty() ? null : runs.get(runs.size() - 1);
    }
    return last;
  }

  /** Forgets entries at or below an LSN. */
  void trim(long lsn) {
    while (!runs.isEmpty()) {
      Run first = runs.get(0);
      int after = first.firstAfter(lsn);
      if (after < first.end) {
        first.dropBefore(after);
        return;
      }
      runs.remove(0);
    }
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

  /** Whether something came in {@code (after, upTo]}. */
  boolean changed(long after, long upTo) {
    int r = firstRunAfter(after);
    if (r == runs.size()) {
      return false;
    }
    Run run = runs.get(r);
    return run.from(run.firstAfter(after)) <= upTo;
  }

  /** The last entry that counts at an LSN; null if there is none. */
  Entry last(long lsn) {
    for (int r = runs.size() - 1; r >= 0; r--) {
      Run run = runs.get(r);
      int i = run.firstAfter(lsn);
      if (i < run.end && run.from(i) <= lsn) {
        return new Entry(run, i);
      }
      if (i > run.start) {
        return new Entry(run, i - 1);
      }
    }
    return null;
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
