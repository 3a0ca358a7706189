package dev.penstock.kernel.aggregate;

import dev.penstock.kernel.row.Adding;
import dev.penstock.kernel.row.Zero;
import dev.penstock.kernel.state.Moment;
import dev.penstock.kernel.state.StateBytes;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;

/**
 * Pre-aggregates the rows of a task by key before the shuffle.
 *
 * <p>It emits the keys and one binary, the {@link Group} of the rows seen. Keys are normalised for comparison
 * (one zero, one NaN). The table is bounded: when full it is emitted and cleared, so a key can be emitted
 * several times. If the order of arrival matters, the binary starts with the partition and a number, by which {@link #merge} sorts,
 * so partitions are merged in order even if the shuffle reorders them.
 */
final class Combiner implements Adding {
  private static final long serialVersionUID = 1L;
  private static final int MOST_GROUPS = 65_536;
  private static final int MOST_ROWS = 262_144;

  private final int[] keys;
  private final int weightAt;
  private final List<AggFunction> functions;
  private final boolean arrival;
  private int timeAt = -1;
  private int rowAt = -1;
  private int lsnAt = -1;
  private int watermarkAt = -1;

  /** @param weightAt ordinal of the weight, or -1 if every row counts once */
  Combiner(int[] keys, int weightAt, List<AggFunction> functions) {
    this.keys = keys;
    this.weightAt = weightAt;
    this.functions = functions;
    this.arrival = functions.stream().anyMatch(f -> f.arrival);
  }

  /**
   * Aggregates per key and time, which is emitted after the keys; with a row to pass through ({@code row} not -1) nothing is
   * aggregated, and the row is emitted last.
   */
  Combiner byTime(int time, int row) {
    timeAt = time;
    rowAt = row;
    return this;
  }

  /** Also aggregates per {@link Moment}, given by these two columns, which are emitted after the time. */
  Combiner byMoment(int lsn, int watermark) {
    lsnAt = lsn;
    watermarkAt = watermark;
    return this;
  }

  @Override
  public Iterator<Row> call(Iterator<Row> rows) {
    return new Iterator<>() {
      private final Table table = table();
      private Iterator<Row> full = Collections.emptyIterator();

      @Override
      public boolean hasNext() {
        return full.hasNext() || rows.hasNext();
      }

      @Override
      public Row next() {
        if (!full.hasNext()) {
          for (int seen = 0; rows.hasNext() && seen < MOST_ROWS && table.size() < MOST_GROUPS; seen++) {
            table.add(rows.next());
          }
          full = table.drain();
        }
        return full.next();
      }
    };
  }

  @Override
  public Table table() {
    return new Groups();
  }

  /** The groups of the rows seen. */
  private final class Groups implements Table {
    private final StateBytes.Out out = new StateBytes.Out();
    private Map<Object, Group> table = new LinkedHashMap<>();
    private long number;

    @Override
    public void add(Row row) {
      Object key = timeAt < 0 ? key(row) : timed(row);
      Group group = table.get(key);
      if (group == null) {
        group = new Group(functions);
        table.put(key, group);
      }
      group.add(row, weightAt < 0 ? 1 : row.getLong(weightAt));
    }

    @Override
    public int size() {
      return table.size();
    }

    @Override
    public Iterator<Row> drain() {
      Iterator<Map.Entry<Object, Group>> all = table.entrySet().iterator();
      int partition = TaskContext.getPartitionId();
      table = new LinkedHashMap<>();
      return new Iterator<>() {
        @Override
        public boolean hasNext() {
          return all.hasNext();
        }

        @Override
        public Row next() {
          Map.Entry<Object, Group> e = all.next();
          Object[] values = new Object[width()];
          int part = restore(e.getKey(), values);
          out.reset();
          if (arrival) {
            out.varint(partition);
            out.varint(number++);
          }
          e.getValue().write(out);
          values[part] = out.toByteArray();
          return RowFactory.create(values);
        }
      };
    }
  }

  private Timed timed(Row row) {
    Moment moment = lsnAt < 0 || row.isNullAt(lsnAt)
        ? Moment.ON_TIME
        : new Moment(row.getLong(lsnAt), row.getLong(watermarkAt));
    return new Timed(key(row), row.getLong(timeAt), moment, rowAt < 0 ? null : row);
  }

  private Object key(Row row) {
    if (keys.length == 1) {
      return comparable(row.get(keys[0]));
    }
    Object[] values = new Object[keys.length];
    for (int i = 0; i < values.length; i++) {
      values[i] = comparable(row.get(keys[i]));
    }
    return Arrays.asList(values);
  }

  private static Object comparable(Object v) {
    return v instanceof byte[] b ? ByteBuffer.wrap(b) : Zero.positive(v);
  }

  /** A key at a time; one with a row is only equal to itself. */
  private record Timed(Object key, long time, Moment moment, Row row) {
    @Override
    public boolean equals(Object other) {
      return this == other
          || row == null && other instanceof Timed t && t.row == null && time == t.time && moment.equals(t.moment)
              && Objects.equals(key, t.key);
    }

    @Override
    public int hashCode() {
      return 31 * Objects.hashCode(key) + Long.hashCode(time);
    }
  }

  private int width() {
    return Math.max(1, keys.length) + 1 + (timeAt < 0 ? 0 : 3) + (rowAt < 0 ? 0 : 1);
  }

  /** Writes everything except the part, and returns the ordinal of the part. */
  private int restore(Object tableKey, Object[] into) {
    Object key = tableKey instanceof Timed t ? t.key : tableKey;
    if (keys.length == 0) {
      into[0] = 0;
    }
    for (int i = 0; i < keys.length; i++) {
      Object v = keys.length == 1 ? key : ((List<?>) key).get(i);
      into[i] = v instanceof ByteBuffer b ? b.array() : v;
    }
    int at = Math.max(1, keys.length);
    if (tableKey instanceof Timed t) {
      into[at++] = t.time;
      boolean onTime = t.moment == Moment.ON_TIME;
      into[at++] = onTime ? null : t.moment.lsn();
      into[at++] = onTime ? null : t.moment.watermark();
      if (rowAt >= 0) {
        into[at + 1] = t.row.get(rowAt);
      }
    }
    return at;
  }

  /** The sum of the groups of one key. */
  Group merge(List<byte[]> parts) {
    if (arrival && parts.size() > 1) {
      parts.sort((a, b) -> {
        StateBytes.In x = new StateBytes.In(a);
        StateBytes.In y = new StateBytes.In(b);
        int c = Long.compare(x.varint(), y.varint());
        return c != 0 ? c : Long.compare(x.varint(), y.varint());
      });
    }
    Group sum = null;
    for (byte[] part : parts) {
      StateBytes.In in = new StateBytes.In(part);
      if (arrival) {
        in.varint();
        in.varint();
      }
      Group group = new Group(functions).read(in);
      if (sum == null) {
        sum = group;
      } else {
        sum.merge(group);
      }
    }
    return sum;
  }
}
