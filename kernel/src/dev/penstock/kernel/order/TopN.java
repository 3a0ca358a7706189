package dev.penstock.kernel.order;

import com.fasterxml.jackson.databind.JsonNode;
import dev.penstock.kernel.row.PhysicalRow;
import dev.penstock.kernel.state.Keyed;
import dev.penstock.kernel.state.OrderKey.Key;
import dev.penstock.kernel.state.OrderedMap;
import dev.penstock.kernel.state.RowOrder;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.KeyValueGroupedDataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * The rows at positions [offset, offset + limit) of each partition's order.
 *
 * <p>Contract: rows are ordered by the ORDER BY list and then by all their columns, so the choice among ties is always
 * the same; a row of multiplicity n takes n positions. With a ranking function, its value is a column of the output and
 * replaces the position: the output has the rows whose value is in (offset, offset + limit], which with ties may be more
 * than limit rows. Without a limit it has all rows from the offset on. An epoch emits the difference from the previous one,
 * retractions first.
 *
 * <p>State: every row of the input, in order; over append-only input ({@code weight} null) only those up to
 * offset + limit, since no other can ever move up, and if they are few, as one value ({@link ShortTop}). Cost of an epoch: one point access per changed row, and two reads
 * of the first offset + limit rows if one of them may have changed.
 */
public final class TopN {
  private TopN() {}

  /**
   * Adds the operator to a plan.
   *
   * @param specJson partition (columns, may be empty); order ({col, desc, nullsFirst}); columns; weight (column name, null:
   *     append-only input); limit (null: none); offset; rank (null, or name and func: row_number, rank, dense_rank); atOnce (each
   *     partition comes in one epoch, see {@link Keyed})
   */
  public static Dataset<Row> apply(Dataset<Row> in, String specJson) {
    JsonNode spec = PhysicalRow.parse(specJson);
    PhysicalRow row = PhysicalRow.of(in.schema(), PhysicalRow.texts(spec, "columns"));
    String weight = PhysicalRow.text(spec, "weight");
    Head head = Head.of(spec, row, weight == null);
    int[] partition = row.indexesOf(PhysicalRow.texts(spec, "partition"));
    Dataset<Row> rows = in.select(row.enter(weight).toArray(Column[]::new));
    JsonNode rank = spec.get("rank");
    PhysicalRow result =
        rank == null || rank.isNull() ? row : row.with(rank.get("name").asText(), DataTypes.IntegerType);
    StructType keys = row.keySchema(partition);
    StatefulProcessor<Row, Row, Row> processor = head.isShort() ? new ShortTop(head) : new Processor(head);
    Keyed keyed;
    if (head.selectsEarly()) {
      StructType packed = keys.add(ROW, DataTypes.BinaryType, false).add(PhysicalRow.WEIGHT, DataTypes.LongType, false);
      keyed = Keyed.leading(task -> preselect(task, head, partition), packed, keys, processor, result.weighted());
    } else {
      keyed = Keyed.by(
          null, row.weighted(), keys, r -> PhysicalRow.key(r, partition), processor, result.weighted());
    }
    return result.leave(keyed.over(rows, spec));
  }

  /** The only column of preselected rows besides the partition's: the sort key, which contains the whole row. */
  private static final String ROW = "row";

  static byte[] selected(Row row) {
    return row.getAs(row.length() - 2);
  }

  static long weight(Row row) {
    return row.getLong(row.length() - 1);
  }

  /** The part of a partition that is in the output. */
  static final class Head implements Serializable {
    private static final long serialVersionUID = 1L;
    RowOrder order;
    int width;
    long offset;
    long end; // offset + limit; Long.MAX_VALUE: no limit
    String func; // null: positions only
    boolean appendOnly;

    static Head of(JsonNode spec, PhysicalRow row, boolean appendOnly) {
      Head h = new Head();
      h.order = RowOrder.of(spec.get("order"), row, false);
      h.width = row.size();
      h.offset = spec.path("offset").asLong(0);
      JsonNode limit = spec.get("limit");
      h.end = limit == null || limit.isNull() ? Long.MAX_VALUE : Math.addExact(h.offset, limit.asLong());
      JsonNode rank = spec.get("rank");
      h.func = rank == null || rank.isNull() ? null : rank.get("func").asText();
      h.appendOnly = appendOnly;
      if (h.func != null && !List.of("row_number", "rank", "dense_rank").contains(h.func)) {
        throw new IllegalArgumentException("unknown ranking function: " + h.func);
      }
      return h;
    }

    boolean bounded() {
      return end != Long.MAX_VALUE;
    }

    /** True if ties share a value. */
    boolean tied() {
      return "rank".equals(func) || "dense_rank".equals(func);
    }

    boolean selectsEarly() {
      return appendOnly && bounded() && !tied() && end > offset;
    }

    /** True if a partition's state is few rows. */
    boolean isShort() {
      return selectsEarly() && end <= ShortTop.MOST;
    }

    Row result(Object[] values, long rank, long weight) {
      Object[] all = Arrays.copyOf(values, width + (func == null ? 1 : 2));
      if (func != null) {
        all[width] = Math.toIntExact(rank);
      }
      all[all.length - 1] = weight;
      return RowFactory.create(all);
    }
  }

  /** The first rows of a partition, as far as one task has seen them. */
  private static final class First {
    final TreeMap<byte[], Long> rows = new TreeMap<>(Arrays::compareUnsigned);
    long total;

    void add(byte[] key, long n, long end) {
      if (total >= end && Arrays.compareUnsigned(rows.lastKey(), key) < 0) {
        return;
      }
      rows.merge(key, n, Long::sum);
      total += n;
      while (total - rows.lastEntry().getValue() >= end) {
        total -= rows.pollLastEntry().getValue();
      }
    }
  }

  /** The append-only rows of one task that can be among the first {@code end} of their partition. */
  private static Iterator<Row> preselect(Iterator<Row> rows, Head head, int[] partition) {
    Map<Row, First> best = new HashMap<>();
    while (rows.hasNext()) {
      Row r = rows.next();
      best.computeIfAbsent(PhysicalRow.key(r, partition), g -> new First())
          .add(head.order.bytes(r), r.getLong(head.width), head.end);
    }
    return best.entrySet().stream().flatMap(e -> e.getValue().rows.entrySet().stream().map(row -> {
      int n = e.getKey().length();
      Object[] values = new Object[n + 2];
      for (int i = 0; i < n; i++) {
        values[i] = e.getKey().get(i);
      }
      values[n] = row.getKey();
      values[n + 1] = row.getValue();
      return RowFactory.create(values);
    })).iterator();
  }

  /** A row of the output; equal rows with equal rank are one. */
  private record Placed(Key key, long rank) {}

  /** Output multiplicities, in order, and the values of the rows. */
  private static final class Window {
    final Map<Placed, Long> counts = new LinkedHashMap<>();
    final Map<Placed, Object[]> values = new HashMap<>();
    byte[] edge; // no row after it is in the output; null: there is room
    final List<Key> beyond = new ArrayList<>(); // append-only: entries that can never be in the output again

    void add(Placed placed, Object[] row, long n) {
      counts.merge(placed, n, Long::sum);
      values.put(placed, row);
    }
  }

  private static final class Processor extends StatefulProcessor<Row, Row, Row> {
    private static final long serialVersionUID = 1L;
    private final Head head;
    private transient OrderedMap rows;
    private transient ValueState<byte[]> edge;

    Processor(Head head) {
      this.head = head;
    }

    @Override
    public void init(OutputMode outputMode, TimeMode timeMode) {
      rows = OrderedMap.open(getHandle(), "rows", new StructType().add("n", DataTypes.LongType, false));
      edge = getHandle().getValueState("edge", Encoders.BINARY(), TTLConfig.NONE());
    }

    @Override
    public scala.collection.Iterator<Row> handleInputRows(
        Row group, scala.collection.Iterator<Row> input, TimerValues timers) {
      byte[] last = edge.exists() ? edge.get() : null;
      Map<Key, Long> changes = new HashMap<>();
      while (input.hasNext()) {
        Row r = input.next();
        Key key = head.selectsEarly() ? head.order.key(selected(r)) : head.order.key(r);
        if (!head.appendOnly || !after(key, last)) {
          changes.merge(key, weight(r), Long::sum);
        }
      }
      changes.values().removeIf(w -> w == 0);
      boolean matters = false;
      for (Key key : changes.keySet()) {
        matters |= !after(key, last);
      }
      Window before = matters ? read() : null;
      changes.forEach(this::store);
      if (!matters) {
        return empty();
      }
      Window now = read();
      now.beyond.forEach(rows::remove);
      if (now.edge == null) {
        edge.clear();
      } else if (!Arrays.equals(now.edge, last)) {
        edge.update(now.edge);
      }
      return difference(before, now);
    }

    private void store(Key key, long weight) {
      Row kept = rows.get(key);
      long count = (kept == null ? 0 : kept.getLong(0)) + weight;
      if (count == 0) {
        rows.remove(key);
      } else {
        rows.put(key, RowFactory.create(count));
      }
    }

    /** True if the row cannot be in the output: it is after the edge and not a peer of it. */
    private static boolean after(Key key, byte[] edge) {
      if (edge == null) {
        return false;
      }
      byte[] k = key.bytes();
      int common = Arrays.mismatch(k, edge);
      return common >= 0 && common < edge.length && Arrays.compareUnsigned(k, edge) > 0;
    }

    private Window read() {
      Window w = new Window();
      if (head.end <= head.offset) {
        return w;
      }
      long position = 0; // rows before this entry
      long rank = 0;
      byte[] peers = null;
      try (OrderedMap.Entries all = rows.iterate()) {
        while (all.hasNext()) {
          if (w.edge != null && !head.tied() && !head.appendOnly) {
            break;
          }
          OrderedMap.Entry e = all.next();
          long n = e.value().getLong(0);
          if (n <= 0) {
            continue;
          }
          if (w.edge != null && after(e.key(), w.edge)) {
            if (!head.appendOnly) {
              break;
            }
            w.beyond.add(e.key());
            continue;
          }
          Object[] values = head.order.values(e.key());
          if (head.tied()) {
            byte[] peer = head.order.peer(values);
            if (!Arrays.equals(peer, peers)) {
              rank = "rank".equals(head.func) ? position + 1 : rank + 1;
              peers = peer;
            }
            if (rank > head.offset && rank <= head.end) {
              w.add(new Placed(e.key(), rank), values, n);
            }
            position += n;
            if (("rank".equals(head.func) ? position : rank) >= head.end) {
              w.edge = peer;
            }
          } else {
            long from = Math.max(position, head.offset);
            long to = Math.min(position + n, head.end);
            if (head.func == null) {
              if (from < to) {
                w.add(new Placed(e.key(), 0), values, to - from);
              }
            } else {
              for (long p = from; p < to; p++) {
                w.add(new Placed(e.key(), p + 1), values, 1);
              }
            }
            position += n;
            if (position >= head.end) {
              w.edge = e.key().bytes();
            }
          }
        }
      }
      return w;
    }

    private scala.collection.Iterator<Row> difference(Window before, Window now) {
      List<Row> out = new ArrayList<>();
      before.counts.forEach((placed, n) -> {
        long less = n - now.counts.getOrDefault(placed, 0L);
        if (less > 0) {
          out.add(head.result(before.values.get(placed), placed.rank(), -less));
        }
      });
      now.counts.forEach((placed, n) -> {
        long more = n - before.counts.getOrDefault(placed, 0L);
        if (more > 0) {
          out.add(head.result(now.values.get(placed), placed.rank(), more));
        }
      });
      return scala.jdk.javaapi.CollectionConverters.asScala(out.iterator());
    }

    private static scala.collection.Iterator<Row> empty() {
      return scala.jdk.javaapi.CollectionConverters.asScala(java.util.Collections.<Row>emptyIterator());
    }
  }
}
