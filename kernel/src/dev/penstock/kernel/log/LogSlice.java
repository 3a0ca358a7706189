package dev.penstock.kernel.log;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;

/**
 * One Arrow record-batch message in a file: its location, its commit, and the numbers of its rows and
 * columns. {@code before} is the watermark that was in force for its rows: in the index that of the object, as recorded in the
 * log ({@link JobTime#NONE}: that of the previous commit), in an epoch that of the job. {@code to} says which members of a shared job read it (see {@link Roster}). {@code check} is
 * the CRC32C of the message; {@link #UNCHECKED} if an older version wrote it without one.
 */
final class LogSlice implements Serializable {
  private static final long serialVersionUID = 1L;
  static final long UNCHECKED = -1;

  final String path;
  final long lsn;
  final long offset;
  final int length;
  final int rows;
  final int columns;
  final long check;
  final long before;
  final int to;

  LogSlice(String path, long lsn, long offset, int length, int rows, int columns, long check, long before) {
    this(path, lsn, offset, length, rows, columns, check, before, 0);
  }

  private LogSlice(
      String path, long lsn, long offset, int length, int rows, int columns, long check, long before, int to) {
    this.path = path;
    this.lsn = lsn;
    this.offset = offset;
    this.length = length;
    this.rows = rows;
    this.columns = columns;
    this.check = check;
    this.before = before;
    this.to = to;
  }

  /** The same slice with another watermark in force. */
  LogSlice with(long watermark) {
    return watermark == before ? this : new LogSlice(path, lsn, offset, length, rows, columns, check, watermark, to);
  }

  /** The same slice for other members. */
  LogSlice to(int members) {
    return members == to ? this : new LogSlice(path, lsn, offset, length, rows, columns, check, before, members);
  }

  /** Reads {@code offset,length,rows[,check-or-empty[,before]];…}. */
  static List<LogSlice> parse(String path, long lsn, int columns, String packed) {
    List<LogSlice> out = new ArrayList<>();
    if (packed.isEmpty()) {
      return out;
    }
    for (String one : packed.split(";")) {
      String[] p = one.split(",");
      long check = p.length > 3 && !p[3].isEmpty() ? Long.parseLong(p[3]) : UNCHECKED;
      long before = p.length > 4 ? Long.parseLong(p[4]) : JobTime.NONE;
      out.add(new LogSlice(
          path, lsn, Long.parseLong(p[0]), Integer.parseInt(p[1]), Integer.parseInt(p[2]), columns, check, before));
    }
    return out;
  }

  /** Splits slices into at most {@code n} runs of about the same number of rows; few rows stay in one run. */
  static List<List<LogSlice>> spread(List<LogSlice> slices, int n) {
    long rows = 0;
    for (LogSlice s : slices) {
      rows += s.rows;
    }
    List<List<LogSlice>> out = new ArrayList<>();
    if (slices.isEmpty()) {
      return out;
    }
    int tasks = (int) Math.max(1, Math.min(n, rows / 8192));
    long share = (rows + tasks - 1) / tasks;
    List<LogSlice> run = new ArrayList<>();
    long have = 0;
    for (LogSlice s : slices) {
      run.add(s);
      have += s.rows;
      if (have >= share && out.size() < tasks - 1) {
        out.add(run);
        run = new ArrayList<>();
        have = 0;
      }
    }
    if (!run.isEmpty()) {
      out.add(run);
    }
    return out;
  }
}
