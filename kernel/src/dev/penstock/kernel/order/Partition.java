package dev.penstock.kernel.order;

import dev.penstock.kernel.state.OrderKey.Key;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Rows of one partition in their order: all of them, or as many at one end as an epoch needs.
 *
 * <p>Each copy of a row is a line of its own, because analytic functions may give them different values.
 */
final class Partition {
  /** One copy of a row. */
  static final class Line {
    final Key key;
    final Object[] values;
    final byte[] peer;
    Object[] results; // as last emitted; null: new
    byte[] saved; // state of running functions after this line

    Line(Key key, Object[] values, byte[] peer) {
      this.key = key;
      this.values = values;
      this.peer = peer;
    }
  }

  final List<Line> lines;

  Partition(List<Line> lines) {
    this.lines = new ArrayList<>(lines);
  }

  int size() {
    return lines.size();
  }

  Line line(int i) {
    return lines.get(i);
  }

  Object[] values(int i) {
    return lines.get(i).values;
  }

  boolean peers(int i, int j) {
    return Arrays.equals(lines.get(i).peer, lines.get(j).peer);
  }

  /** The first peer of line {@code i}. */
  int peersFrom(int i) {
    int at = i;
    while (at > 0 && peers(at - 1, i)) {
      at--;
    }
    return at;
  }

  /** The line after the last peer of line {@code i}. */
  int peersTo(int i) {
    int at = i + 1;
    while (at < size() && peers(at, i)) {
      at++;
    }
    return at;
  }
}
