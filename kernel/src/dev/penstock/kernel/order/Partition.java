package dev.penstock.kernel.order;

import dev.penstock.kernel.state.OrderKey.Key;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * The rows of one partition in order: all of them, or as many at one end as an epoch needs.
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
  private int[] groups; // by line, the number of its group of peers; computed when first needed
  private int[] starts; // the first line of each group, and the number of lines

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

  /** The first peer of line {@code i}. */
  int peersFrom(int i) {
    return groupFrom(group(i));
  }

  /** The line after the last peer of line {@code i}. */
  int peersTo(int i) {
    return groupFrom(group(i) + 1);
  }

  /** The number of the group of peers that line {@code i} belongs to. */
  int group(int i) {
    if (groups == null) {
      number();
    }
    return groups[i];
  }

  /** The first line of a group; for a group past either end, the end of the lines on that side. */
  int groupFrom(long group) {
    if (groups == null) {
      number();
    }
    return starts[(int) Math.max(0, Math.min(group, starts.length - 1))];
  }

  private void number() {
    groups = new int[size()];
    int[] found = new int[size() + 1];
    int count = 0;
    for (int i = 0; i < groups.length; i++) {
      if (i == 0 || !Arrays.equals(lines.get(i - 1).peer, lines.get(i).peer)) {
        found[count++] = i;
      }
      groups[i] = count - 1;
    }
    found[count] = size();
    starts = Arrays.copyOf(found, count + 1);
  }
}
