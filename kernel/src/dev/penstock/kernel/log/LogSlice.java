package dev.penstock.kernel.log;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;

/**
 * One Arrow record-batch message in a file: where it is, the commit that it belongs to, how many rows it has and with how many
 * columns it was written.
 */
final class LogSlice implements Serializable {
  private static final long serialVersionUID = 1L;

  final String path;
  final long lsn;
  final long offset;
  final int length;
  final int rows;
  final int columns;

  LogSlice(String path, long lsn, long offset, int length, int rows, int columns) {
    this.path = path;
    this.lsn = lsn;
    this.offset = offset;
    this.length = length;
    this.rows = rows;
    this.columns = columns;
  }

  /** Reads {@code offset,length,rows;…}. */
  static List<LogSlice> parse(String path, long lsn, int columns, String packed) {
    List<LogSlice> out = new ArrayList<>();
    if (packed.isEmpty()) {
      return out;
    }
    for (String one : packed.split(";")) {
      String[] p = one.split(",");
      out.add(new LogSlice(path, lsn, Long.parseLong(p[0]), Integer.parseInt(p[1]), Integer.parseInt(p[2]), columns));
    }
    return out;
  }
}
