package dev.penstock.kernel.order;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.penstock.kernel.aggregate.Accumulator;
import dev.penstock.kernel.aggregate.AggFunction;
import dev.penstock.kernel.row.Input;
import dev.penstock.kernel.state.StateBytes;
import java.io.Serializable;
import java.math.BigDecimal;
import java.math.RoundingMode;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;

/**
 * One call of an analytic function: what it depends on and how its values are computed.
 *
 * <p>Values are Spark's. Aggregates (including first_value and last_value) are those of {@link AggFunction}, over the
 * rows of the frame in order; ranking functions, lag and lead have no frame.
 */
final class WindowFunction implements Serializable {
  private static final long serialVersionUID = 1L;

  /** Which rows of the partition a value depends on. */
  enum Reach {
    /** At most {@link #back} rows before and {@link #ahead} rows after. */
    NEAR,
    /** All rows before, through a running state. */
    RUNNING,
    /** All rows. */
    WHOLE
  }

  final String name;
  final DataType type;
  final Reach reach;
  final int back;
  final int ahead;
  private final String func;
  private final WindowFrame frame;
  private final AggFunction aggregate; // null: not an aggregate
  private final int argument; // of lag, lead and nth_value
  private final boolean ignoreNulls;
  private final long number; // offset of lag, n of nth_value and ntile
  private final Object otherwise; // default of lag and lead
  private final int otherwiseAt; // the column with the default; -1: a constant

  /**
   * Reads a call.
   *
   * @param order the ORDER BY list of the call's window
   * @param input columns of the rows; the call's arguments are added to it
   */
  WindowFunction(JsonNode call, JsonNode order, Input input, boolean ansi) {
    this.name = call.get("name").asText();
    this.type = DataType.fromDDL(call.get("type").asText());
    this.func = call.get("func").asText().toLowerCase(java.util.Locale.ROOT);
    this.frame = WindowFrame.of(call.get("frame"), order, input::add);
    this.ignoreNulls = call.path("ignoreNulls").asBoolean(false);
    JsonNode literals = call.path("literals");
    boolean shift = func.equals("lag") || func.equals("lead");
    long n = literals.hasNonNull(0) ? literals.get(0).asLong() : 1;
    this.number = func.equals("lag") ? -n : n;
    if ((func.equals("ntile") || func.equals("nth_value")) && n < 1) {
      throw new IllegalArgumentException(func + " needs a positive number, got " + n);
    }
    AggFunction agg = null;
    int arg = -1;
    int defaults = -1;
    switch (func) {
      case "row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile" -> { }
      case "lag", "lead", "nth_value" -> {
        arg = input.add(call.get("args").get(0).asText());
        defaults = shift && call.get("args").size() > 1 ? input.add(call.get("args").get(1).asText()) : -1;
      }
      default -> {
        ObjectNode one = new ObjectMapper().createObjectNode();
        one.putArray("aggs").add(call);
        agg = AggFunction.list(one, input, true, ansi).get(0);
      }
    }
    this.aggregate = agg;
    this.argument = arg;
    this.otherwiseAt = defaults;
    this.otherwise = shift && literals.hasNonNull(1) ? literal(literals.get(1), input.type(arg)) : null;
    int before = 0;
    int after = 0;
    if (shift && !ignoreNulls) {
      this.reach = Reach.NEAR;
      before = Math.toIntExact(Math.max(0, -number));
      after = Math.toIntExact(Math.max(0, number));
    } else if (func.equals("row_number") || func.equals("rank") || func.equals("dense_rank")) {
      this.reach = Reach.RUNNING;
    } else if (shift || func.equals("percent_rank") || func.equals("cume_dist") || func.equals("ntile")) {
      this.reach = Reach.WHOLE;
    } else if (frame.near()) {
      this.reach = Reach.NEAR;
      before = (int) Math.max(0, -frame.start);
      after = (int) Math.max(0, frame.end);
    } else {
      this.reach = frame.running() && aggregate != null ? Reach.RUNNING : Reach.WHOLE;
    }
    this.back = before;
    this.ahead = after;
  }

  /** The state of a running function from line to line. */
  interface Running {
    /** The values of lines [from, to): one line, or all peers if the function treats them as one. */
    Object[] next(Partition p, int from, int to);

    void write(StateBytes.Out out);

    void read(StateBytes.In in);
  }

  /** True if peers share a value, so a running function processes them together. */
  boolean byPeers() {
    return reach == Reach.RUNNING && !func.equals("row_number") && !(aggregate != null && frame.rows);
  }

  /** A fresh state of a running function. */
  Running running() {
    return aggregate == null ? new Ranks() : new Fold();
  }

  private final class Ranks implements Running {
    private long rows;
    private long groups;

    @Override
    public Object[] next(Partition p, int from, int to) {
      Object[] out = new Object[to - from];
      groups++;
      for (int i = 0; i < out.length; i++) {
        out[i] = Math.toIntExact(func.equals("dense_rank") ? groups : rows + 1);
      }
      rows += to - from;
      return out;
    }

    @Override
    public void write(StateBytes.Out out) {
      out.varint(rows);
      out.varint(groups);
    }

    @Override
    public void read(StateBytes.In in) {
      rows = in.varint();
      groups = in.varint();
    }
  }

  private final class Fold implements Running {
    private final Accumulator acc = aggregate.create();

    @Override
    public Object[] next(Partition p, int from, int to) {
      add(acc, p, from, to);
      Object[] out = new Object[to - from];
      java.util.Arrays.fill(out, aggregate.result(acc));
      return out;
    }

    @Override
    public void write(StateBytes.Out out) {
      acc.write(out);
    }

    @Override
    public void read(StateBytes.In in) {
      acc.read(in);
    }
  }

  private void add(Accumulator acc, Partition p, int from, int to) {
    for (int i = from; i < to; i++) {
      acc.add(aggregate.arguments(RowFactory.create(p.values(i))), 1);
    }
  }

  /** Values of lines [from, to) of a function that is not running; {@code p} holds everything they depend on. */
  Object[] values(Partition p, int from, int to) {
    Object[] out = new Object[to - from];
    switch (func) {
      case "lag", "lead" -> {
        for (int i = from; i < to; i++) {
          out[i - from] = shifted(p, i);
        }
      }
      case "nth_value" -> {
        for (int i = from; i < to; i++) {
          out[i - from] = nth(p, frame.pieces(p, i));
        }
      }
      case "percent_rank" -> {
        for (int i = from; i < to; i = p.peersTo(i)) {
          double v = p.size() == 1 ? 0.0 : (double) p.peersFrom(i) / (p.size() - 1);
          java.util.Arrays.fill(out, i - from, Math.min(p.peersTo(i), to) - from, v);
        }
      }
      case "cume_dist" -> {
        for (int i = from; i < to; i = p.peersTo(i)) {
          double v = (double) p.peersTo(i) / p.size();
          java.util.Arrays.fill(out, i - from, Math.min(p.peersTo(i), to) - from, v);
        }
      }
      case "ntile" -> {
        long each = p.size() / number;
        long longer = p.size() % number; // the number of buckets with one more row, which come first
        for (int i = from; i < to; i++) {
          long inLonger = longer * (each + 1);
          out[i - from] = (int) (i < inLonger ? i / (each + 1) + 1 : longer + (i - inLonger) / each + 1);
        }
      }
      default -> aggregates(p, from, to, out);
    }
    return out;
  }

  private void aggregates(Partition p, int from, int to, Object[] out) {
    Accumulator acc = aggregate.create();
    int covered = 0;
    Object last = null;
    boolean fresh = true;
    for (int i = from; i < to; i++) {
      if (frame.start == null && frame.all()) {
        // The frame only grows.
        int high = frame.high(p, i);
        if (fresh || high > covered) {
          add(acc, p, covered, high);
          covered = Math.max(covered, high);
          last = aggregate.result(acc);
          fresh = false;
        }
        out[i - from] = last;
      } else {
        Accumulator one = aggregate.create();
        int[] pieces = frame.pieces(p, i);
        for (int k = 0; k < pieces.length; k += 2) {
          add(one, p, pieces[k], pieces[k + 1]);
        }
        out[i - from] = aggregate.result(one);
      }
    }
  }

  private Object shifted(Partition p, int i) {
    if (number == 0) {
      return p.values(i)[argument];
    }
    if (!ignoreNulls) {
      long at = i + number;
      return at < 0 || at >= p.size() ? otherwise(p, i) : p.values((int) at)[argument];
    }
    int step = number < 0 ? -1 : 1;
    long left = Math.abs(number);
    for (int at = i + step; at >= 0 && at < p.size(); at += step) {
      Object v = p.values(at)[argument];
      if (v != null && --left == 0) {
        return v;
      }
    }
    return otherwise(p, i);
  }

  private Object otherwise(Partition p, int i) {
    return otherwiseAt < 0 ? otherwise : p.values(i)[otherwiseAt];
  }

  private Object nth(Partition p, int[] pieces) {
    long left = number;
    for (int k = 0; k < pieces.length; k += 2) {
      int length = Math.max(0, pieces[k + 1] - pieces[k]);
      if (!ignoreNulls && left > length) {
        left -= length;
        continue;
      }
      for (int i = ignoreNulls ? pieces[k] : pieces[k] + (int) left - 1; i < pieces[k + 1]; i++) {
        Object v = p.values(i)[argument];
        if (!ignoreNulls || v != null && --left == 0) {
          return v;
        }
      }
    }
    return null;
  }

  /** A JSON literal as a value of the type; dates and times in wire form, in days or micros. */
  private static Object literal(JsonNode n, DataType t) {
    if (t instanceof StringType) {
      return n.asText();
    } else if (t instanceof BooleanType) {
      return n.asBoolean();
    } else if (t instanceof DecimalType d) {
      return new BigDecimal(n.asText()).setScale(d.scale(), RoundingMode.HALF_UP);
    } else if (t instanceof DoubleType) {
      return Double.valueOf(n.asText());
    } else if (t instanceof FloatType) {
      return Float.valueOf(n.asText());
    } else if (t instanceof LongType) {
      return new BigDecimal(n.asText()).longValueExact();
    } else if (t instanceof IntegerType) {
      return new BigDecimal(n.asText()).intValueExact();
    } else if (t instanceof ShortType) {
      return new BigDecimal(n.asText()).shortValueExact();
    } else if (t instanceof ByteType) {
      return new BigDecimal(n.asText()).byteValueExact();
    }
    throw new IllegalArgumentException("no literal of type " + t.sql() + " can be the default of lag or lead");
  }
}
