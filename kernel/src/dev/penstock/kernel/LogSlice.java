package dev.penstock.kernel;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;

/** One Arrow record-batch message in a file: where it is, how many rows it has and how many columns it was written with. */
final class LogSlice implements Serializable {
  private static final long serialVersionUID = 1L;

  final String path;
  final long offset;
  final int length;
  final int rows;
  final int columns;

  LogSlice(String path, long offset, int length, int rows, int columns) {
    this.path = path;
    this.offset = offset;
    this.length = length;
    this.rows = rows;
    this.columns = columns;
  }

  /** Reads {@code offset,length,rows;…}. */
  static List<LogSlice> parse(String path, int columns, String packed) {
    List<LogSlice> out = new ArrayList<>();
    if (packed.isEmpty()) {
      return out;
    }
    for (String one : packed.split(";")) {
      String[] p = one.split(",");
      out.add(new LogSlice(path, Long.parseLong(p[0]), Integer.parseInt(p[1]), Integer.parseInt(p[2]), columns));
    }
    return out;
  }
}
