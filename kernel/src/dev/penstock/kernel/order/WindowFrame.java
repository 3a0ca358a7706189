package dev.penstock.kernel.order;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;
import java.math.BigDecimal;
import java.util.Locale;
import java.util.function.ToIntFunction;

/**
 * The rows that an analytic function sees for one row: [{@link #low}, {@link #high}) of the partition, except excluded ones.
 *
 * <p>ROWS counts rows, GROUPS counts groups of peers. RANGE compares the single ORDER BY column: rows whose value is between the row's own plus the
 * two bounds (for DESC: minus), where 0 means the row's peers, and NULL is only near NULLs. A null bound is
 * unbounded. EXCLUDE omits the row itself, its peers, or both.
 */
final class WindowFrame implements Serializable {
  private static final long serialVersionUID = 1L;

  /** The rows that a frame excludes. */
  private enum Excluded {
    NOTHING,
    CURRENT_ROW,
    GROUP,
    TIES
  }

  final boolean rows;
  private final boolean groups;
  private final Excluded excluded;
  final Double start;
  final Double end;
  private final int column; // for RANGE with bounds other than 0; -1: not needed
  private final boolean desc;

  private WindowFrame(String unit, Double start, Double end, int column, boolean desc, Excluded excluded) {
    this.rows = unit.equals("rows");
    this.groups = unit.equals("groups");
    this.excluded = excluded;
    this.start = start;
    this.end = end;
    this.column = column;
    this.desc = desc;
  }

  /** A call's frame; absent: up to the last peer if there is an order, else everything. */
  static WindowFrame of(JsonNode frame, JsonNode order, ToIntFunction<String> ordinal) {
    boolean ordered = order != null && order.size() > 0;
    if (frame == null || frame.isNull()) {
      return new WindowFrame("range", null, ordered ? 0.0 : null, -1, false, Excluded.NOTHING);
    }
    String unit = frame.get("unit").asText();
    Excluded excluded = frame.hasNonNull("exclude")
        ? Excluded.valueOf(frame.get("exclude").asText().toUpperCase(Locale.ROOT).replace(' ', '_'))
        : Excluded.NOTHING;
    Double start = bound(frame, "start");
    Double end = bound(frame, "end");
    boolean byValue = unit.equals("range") && (start != null && start != 0 || end != null && end != 0);
    if (byValue && (order == null || order.size() != 1)) {
      throw new IllegalArgumentException("RANGE with an offset needs exactly one ORDER BY column");
    }
    if (!byValue) {
      return new WindowFrame(unit, start, end, -1, false, excluded);
    }
    JsonNode by = order.get(0);
    int column = ordinal.applyAsInt(by.get("col").asText());
    return new WindowFrame(unit, start, end, column, by.path("desc").asBoolean(false), excluded);
  }

  private static Double bound(JsonNode frame, String member) {
    return frame.hasNonNull(member) ? (Double) frame.get(member).asDouble() : null;
  }

  /** From the partition's first row to the current one (ROWS) or its last peer (RANGE, GROUPS). */
  boolean running() {
    return start == null && end != null && end == 0 && all();
  }

  /** Whether nothing is excluded. */
  boolean all() {
    return excluded == Excluded.NOTHING;
  }

  /** The frame of row {@code i}: pairs of the first row and the row after the last; the second may be smaller. */
  int[] pieces(Partition p, int i) {
    int low = low(p, i);
    int high = high(p, i);
    return switch (excluded) {
      case NOTHING -> new int[] {low, high};
      case CURRENT_ROW -> new int[] {low, Math.min(i, high), Math.max(i + 1, low), high};
      case GROUP -> new int[] {low, Math.min(p.peersFrom(i), high), Math.max(p.peersTo(i), low), high};
      case TIES -> new int[] {
        low, Math.min(p.peersFrom(i), high), Math.max(i, low), Math.min(i + 1, high), Math.max(p.peersTo(i), low), high
      };
    };
  }

  /** ROWS between two finite bounds. */
  boolean near() {
    return rows && start != null && end != null;
  }

  /** First row of the frame of row {@code i}; may be {@code high} or more if the frame is empty. */
  int low(Partition p, int i) {
    if (start == null) {
      return 0;
    } else if (rows) {
      return clamp(i + start.longValue(), p.size());
    } else if (groups) {
      return p.groupFrom(p.group(i) + start.longValue());
    } else if (start == 0 || p.values(i)[column] == null) {
      return p.peersFrom(i);
    }
    Number bound = shifted(p.values(i)[column], start);
    int at = start < 0 ? i : p.peersFrom(i);
    if (start < 0) {
      while (at > 0 && inOrder(p.values(at - 1)[column], bound) >= 0) {
        at--;
      }
    } else {
      while (at < p.size() && p.values(at)[column] != null && inOrder(p.values(at)[column], bound) < 0) {
        at++;
      }
    }
    return at;
  }

  /** The row after the frame of row {@code i}. */
  int high(Partition p, int i) {
    if (end == null) {
      return p.size();
    } else if (rows) {
      return clamp(i + end.longValue() + 1, p.size());
    } else if (groups) {
      return p.groupFrom(p.group(i) + end.longValue() + 1);
    } else if (end == 0 || p.values(i)[column] == null) {
      return p.peersTo(i);
    }
    Number bound = shifted(p.values(i)[column], end);
    int at = p.peersTo(i);
    if (end < 0) {
      while (at > 0 && p.values(at - 1)[column] != null && inOrder(p.values(at - 1)[column], bound) > 0) {
        at--;
      }
    } else {
      while (at < p.size() && p.values(at)[column] != null && inOrder(p.values(at)[column], bound) <= 0) {
        at++;
      }
    }
    return at;
  }

  private static int clamp(long at, int size) {
    return (int) Math.max(0, Math.min(at, size));
  }

  private Number shifted(Object value, double by) {
    double offset = desc ? -by : by;
    if (value instanceof BigDecimal d) {
      return d.add(BigDecimal.valueOf(offset));
    } else if (value instanceof Double || value instanceof Float) {
      return ((Number) value).doubleValue() + offset;
    }
    long v = ((Number) value).longValue();
    long sum = v + (long) offset;
    return ((v ^ sum) & ((long) offset ^ sum)) < 0 ? (v < 0 ? Long.MIN_VALUE : Long.MAX_VALUE) : sum;
  }

  /** Compares a row's value with a bound in the partition's order; NULL is beyond every bound on its own side. */
  private int inOrder(Object value, Number bound) {
    if (value == null) {
      return -1;
    }
    int c;
    if (bound instanceof BigDecimal b) {
      c = ((BigDecimal) value).compareTo(b);
    } else if (bound instanceof Double b) {
      c = Double.compare(((Number) value).doubleValue() + 0.0, b + 0.0);
    } else {
      c = Long.compare(((Number) value).longValue(), bound.longValue());
    }
    return desc ? -c : c;
  }
}
