package dev.penstock.kernel.order;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.penstock.kernel.order.Partition.Line;
import dev.penstock.kernel.order.WindowFunction.Reach;
import dev.penstock.kernel.error.GroupErrors;
import dev.penstock.kernel.row.Input;
import dev.penstock.kernel.row.PhysicalRow;
import dev.penstock.kernel.row.Wire;
import dev.penstock.kernel.state.Keyed;
import dev.penstock.kernel.state.OrderKey.Key;
import dev.penstock.kernel.state.OrderedMap;
import dev.penstock.kernel.state.RowOrder;
import dev.penstock.kernel.state.StateBytes;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.KeyValueGroupedDataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimeType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Analytic functions over one PARTITION BY / ORDER BY of a Z-set.
 *
 * <p>Contract: after each epoch the output holds every input row with the values of Spark's batch query, with ties of
 * the ORDER BY broken by the whole row. An epoch emits the rows that were inserted, deleted, or whose values changed; for each
 * partition first the retractions, then the insertions. Retracting a row that does not exist is an error. With {@code errors} (see {@link
 * GroupErrors}) a row with a value that overflows its type is reported instead of its result.
 *
 * <p>State: every copy of every row with its values, in order; for an ascending order the largest row first. Cost of an
 * epoch for each partition it touches: functions that look at a bounded number of rows (lag, lead, ROWS between two
 * bounds) read and write around the changed rows; running ones (row_number, rank, aggregates up to the current row)
 * from the first changed row on. Both read from the end at which an ascending order grows (a descending one: from its start), so
 * rows that arrive in order are cheap, and late ones cost a read for each row that overtook them. All others (percent_rank, ntile,
 * frames that reach the partition's end, RANGE with offsets, lag and lead with IGNORE NULLS) read the whole partition.
 */
public final class Analytic {
  private Analytic() {}

  /**
   * Adds the operator to a plan.
   *
   * @param specJson partition (columns); order ({col, desc, nullsFirst}); columns; weight (column name, null: append-only
   *     input); atOnce (each partition comes in one epoch, see {@link Keyed}); calls ({name, func, args, literals, type, frame: {unit, start, end}, ignoreNulls})
   */
  public static Dataset<Row> apply(Dataset<Row> in, String specJson) {
    JsonNode spec = Input.parse(specJson);
    List<String> columns = Input.texts(spec, "columns");
    boolean ansi = Boolean.parseBoolean(in.sparkSession().conf().get("spark.sql.ansi.enabled"));
    Input input = new Input(in);
    int[] data = columns.stream().mapToInt(input::add).toArray();
    int[] partition = Input.texts(spec, "partition").stream().mapToInt(input::add).toArray();
    JsonNode order = spec.path("order");
    List<ObjectNode> orderBy = new ArrayList<>();
    order.forEach(o -> orderBy.add(((ObjectNode) o.deepCopy()).put("col", "c" + input.add(o.get("col").asText()))));
    List<WindowFunction> calls = new ArrayList<>();
    spec.get("calls").forEach(c -> calls.add(new WindowFunction(c, order, input, ansi)));
    String weight = Input.text(spec, "weight");
    int weightAt = weight == null ? -1 : input.add(weight, DataTypes.LongType);
    Dataset<Row> rows = input.dataset();
    List<String> names = new ArrayList<>(List.of(rows.columns()));
    if (weight != null) {
      names.remove(weightAt);
    }
    PhysicalRow row = PhysicalRow.of(rows.schema(), names);
    JsonNode orderSpec = spec.path("calls").isEmpty() ? null : array(orderBy);
    GroupErrors errors = errors(spec, input, columns);
    Plan plan = new Plan(row, orderSpec, data, calls.toArray(WindowFunction[]::new), errors);

    StructType result = new StructType();
    List<Column> out = new ArrayList<>();
    for (int i = 0; i < data.length; i++) {
      DataType declared = input.declared(columns.get(i));
      result = result.add("d" + i, Wire.type(declared), true);
      out.add(Wire.from(functions.col("d" + i), declared).as(columns.get(i)));
    }
    for (int i = 0; i < calls.size(); i++) {
      result = result.add("r" + i, Wire.type(calls.get(i).type), true);
      out.add(Wire.from(functions.col("r" + i), calls.get(i).type).as(calls.get(i).name));
    }
    result = result.add(PhysicalRow.WEIGHT, DataTypes.LongType, false);
    out.add(functions.col(PhysicalRow.WEIGHT));
    return Keyed.by(
            null, row.weighted(), row.keySchema(partition), r -> PhysicalRow.key(r, partition), new Processor(plan),
            result)
        .over(rows.select(row.enter(weight == null ? null : "c" + weightAt).toArray(Column[]::new)), spec)
        .select(out.toArray(Column[]::new));
  }

  /** Reports rows with a value that cannot be computed. */
  private static GroupErrors errors(JsonNode spec, Input input, List<String> columns) {
    StructType told = new StructType();
    List<DataType> travels = new ArrayList<>();
    for (String column : columns) {
      DataType declared = input.declared(column);
      travels.add(Wire.type(declared));
      told = told.add(column, declared instanceof TimeType ? DataTypes.StringType : declared, true);
    }
    return GroupErrors.of(spec.path("errors"), told, travels.toArray(DataType[]::new));
  }

  private static JsonNode array(List<ObjectNode> items) {
    return new com.fasterxml.jackson.databind.ObjectMapper().createArrayNode().addAll(items);
  }

  /** How to process an epoch of a partition. */
  private static final class Plan implements Serializable {
    private static final long serialVersionUID = 1L;
    final WindowFunction[] calls;
    final int[] data; // ordinals of the output's columns
    final int width; // of an input row; in a line, the copy's number follows
    final RowOrder order;
    final boolean reversed; // the partition's last row is stored first
    final boolean whole; // every epoch needs the whole partition
    final boolean saving; // lines store the state of running functions
    final int back;
    final int ahead;
    final GroupErrors errors; // null if every value can be computed

    Plan(PhysicalRow row, JsonNode orderSpec, int[] data, WindowFunction[] calls, GroupErrors errors) {
      this.errors = errors;
      this.calls = calls;
      this.data = data;
      this.width = row.size();
      boolean descending = orderSpec != null && orderSpec.path(0).path("desc").asBoolean(false);
      this.reversed = !descending;
      this.order = RowOrder.of(orderSpec, row.with("__copy", DataTypes.IntegerType), reversed);
      boolean running = Arrays.stream(calls).anyMatch(c -> c.reach == Reach.RUNNING);
      this.whole = Arrays.stream(calls).anyMatch(c -> c.reach == Reach.WHOLE) || running && !reversed;
      this.saving = running && !whole;
      this.back = Arrays.stream(calls).mapToInt(c -> c.back).max().orElse(0);
      this.ahead = Arrays.stream(calls).mapToInt(c -> c.ahead).max().orElse(0);
    }

    /** Schema of a line's stored values, besides its key. */
    StructType kept() {
      StructType s = new StructType();
      for (int i = 0; i < calls.length; i++) {
        s = s.add("r" + i, Wire.type(calls[i].type), true);
      }
      s = saving ? s.add("saved", DataTypes.BinaryType, true) : s;
      return errors == null ? s : s.add("expression", DataTypes.StringType, true).add("error", DataTypes.StringType, true);
    }

    /** The stored form of a line's values. */
    Row kept(Object[] values, byte[] save) {
      List<Object> all = new ArrayList<>();
      for (Object value : values) {
        all.add(value instanceof GroupErrors.Failed ? null : value);
      }
      if (saving) {
        all.add(save);
      }
      if (errors != null) {
        GroupErrors.Failed failed = GroupErrors.first(values);
        all.add(failed == null ? null : failed.expression());
        all.add(failed == null ? null : failed.error());
      }
      return RowFactory.create(all.toArray());
    }

    /** The stored values of a line; one failed value represents all. */
    Object[] values(Row kept) {
      Object[] values = new Object[calls.length];
      for (int i = 0; i < values.length; i++) {
        values[i] = kept.get(i);
      }
      if (errors != null && !kept.isNullAt(kept.length() - 1)) {
        values[0] = new GroupErrors.Failed(kept.getString(kept.length() - 2), kept.getString(kept.length() - 1));
      }
      return values;
    }

    /** The key of a copy of a row. */
    Key key(Object[] values, int copy) {
      Object[] all = Arrays.copyOf(values, width + 1);
      all[width] = copy;
      return order.key(RowFactory.create(all));
    }

    /** Identifies the row of a line: its key without the number of the copy, which is last. */
    static ByteBuffer identity(Key key) {
      return ByteBuffer.wrap(key.bytes(), 0, key.bytes().length - 1 - Integer.BYTES);
    }
  }

  private static final class Processor extends StatefulProcessor<Row, Row, Row> {
    private static final long serialVersionUID = 1L;
    private final Plan plan;
    private transient OrderedMap state;

    Processor(Plan plan) {
      this.plan = plan;
    }

    @Override
    public void init(OutputMode outputMode, TimeMode timeMode) {
      state = OrderedMap.open(getHandle(), "lines", plan.kept());
    }

    @Override
    public scala.collection.Iterator<Row> handleInputRows(
        Row group, scala.collection.Iterator<Row> input, TimerValues timers) {
      Map<ByteBuffer, Change> changes = new HashMap<>();
      while (input.hasNext()) {
        Row r = input.next();
        Object[] values = new Object[plan.width];
        for (int i = 0; i < plan.width; i++) {
          values[i] = r.get(i);
        }
        Key first = plan.key(values, 0);
        changes.computeIfAbsent(Plan.identity(first), k -> new Change(values, first)).weight += r.getLong(plan.width);
      }
      changes.values().removeIf(c -> c.weight == 0);
      Map<Row, Long> diff = new LinkedHashMap<>(); // copies of a row may exchange their values
      if (!changes.isEmpty()) {
        run(changes, diff);
      }
      List<Row> out = new ArrayList<>();
      diff.forEach((row, n) -> {
        if (n < 0) {
          out.add(PhysicalRow.weighted(row, row.size(), n));
        }
      });
      diff.forEach((row, n) -> {
        if (n > 0) {
          out.add(PhysicalRow.weighted(row, row.size(), n));
        }
      });
      return CollectionConverters.asScala(out.iterator());
    }

    private static final class Change {
      final Object[] values;
      final Key first;
      long weight;
      final List<Line> copies = new ArrayList<>(); // existing ones, by number

      Change(Object[] values, Key first) {
        this.values = values;
        this.first = first;
      }
    }

    private void run(Map<ByteBuffer, Change> changes, Map<Row, Long> diff) {
      List<Line> before = load(changes.values());
      for (Line line : before) {
        Change c = changes.get(Plan.identity(line.key));
        if (c != null) {
          c.copies.add(line);
        }
      }
      Set<Line> gone = new HashSet<>();
      List<Line> now = new ArrayList<>(before);
      Set<Line> come = new HashSet<>();
      for (Change c : changes.values()) {
        int n = c.copies.size();
        if (c.weight < -n) {
          throw new IllegalStateException("a row is retracted that does not exist: " + Arrays.toString(c.values));
        }
        for (long i = c.weight; i < 0; i++) {
          gone.add(c.copies.get(--n));
        }
        for (long i = 0; i < c.weight; i++) {
          Line line = new Line(plan.key(c.values, n++), c.values, plan.order.peer(c.values));
          come.add(line);
          now.add(line);
        }
      }
      Comparator<Line> stored = Comparator.comparing((Line l) -> l.key);
      now.sort(plan.reversed ? stored.reversed() : stored);
      int changedFrom = Integer.MAX_VALUE;
      int changedTo = 0;
      List<Line> lines = new ArrayList<>(now.size());
      for (Line line : now) {
        boolean lost = gone.contains(line);
        if (lost || come.contains(line)) {
          changedFrom = Math.min(changedFrom, lines.size());
          changedTo = lines.size();
        }
        if (!lost) {
          lines.add(line);
        }
      }
      for (Line line : now) {
        if (gone.contains(line)) {
          add(line, line.results, -1, diff);
          state.remove(line.key);
        }
      }
      emit(new Partition(lines), changedFrom, changedTo, diff);
    }

    /** The lines that an epoch with these changes needs, in the partition's order. */
    private List<Line> load(Iterable<Change> changes) {
      Key far = null;
      for (Change c : changes) {
        Key key = plan.reversed ? c.first : plan.key(c.values, Integer.MAX_VALUE);
        far = far == null || key.compareTo(far) > 0 ? key : far;
      }
      // Besides the changes: lines whose values may change, their peers, and the lines that these depend on.
      int affected = 1 + (plan.reversed ? plan.ahead : plan.back);
      int context = 1 + (plan.reversed ? Math.max(plan.back, 1) : plan.ahead);
      byte[] peer = null;
      int seen = 0;
      List<Line> lines = new ArrayList<>();
      try (OrderedMap.Entries all = state.iterate()) {
        while (context > 0 && all.hasNext()) {
          Line line = line(all.next());
          if (!plan.whole && line.key.compareTo(far) > 0) {
            if (seen < affected) {
              seen++;
              peer = line.peer;
            } else if (peer == null || !Arrays.equals(peer, line.peer)) {
              peer = null;
              context--;
            }
          }
          lines.add(line);
        }
      }
      if (plan.reversed) {
        Collections.reverse(lines);
      }
      return lines;
    }

    private Line line(OrderedMap.Entry e) {
      Object[] values = Arrays.copyOf(plan.order.values(e.key()), plan.width);
      Line line = new Line(e.key(), values, plan.order.peer(values));
      line.results = plan.values(e.value());
      line.saved = plan.saving ? (byte[]) e.value().get(plan.calls.length) : null;
      return line;
    }

    private void emit(Partition p, int changedFrom, int changedTo, Map<Row, Long> diff) {
      if (p.size() == 0) {
        return;
      }
      int from = 0;
      int to = p.size();
      if (!plan.whole) {
        from = Math.min(Math.max(0, changedFrom - plan.ahead - 1), to - 1);
        from = p.peersFrom(from);
        if (!plan.saving) {
          to = Math.min(to, changedTo + plan.back + 2);
        }
      }
      Object[][] results = new Object[plan.calls.length][];
      StateBytes.Out[] saved = new StateBytes.Out[to - from];
      StateBytes.In before = plan.saving && from > 0 ? new StateBytes.In(p.line(from - 1).saved) : null;
      for (int c = 0; c < results.length; c++) {
        WindowFunction call = plan.calls[c];
        results[c] = call.reach == Reach.RUNNING ? run(call, p, from, to, before, saved) : call.values(p, from, to);
      }
      for (int i = from; i < to; i++) {
        Line line = p.line(i);
        int at = i - from;
        Object[] values = IntStream.range(0, results.length).mapToObj(c -> results[c][at]).toArray();
        byte[] save = plan.saving ? saved[at].toByteArray() : null;
        boolean same = line.results != null && Arrays.deepEquals(line.results, values);
        if (!same) {
          if (line.results != null) {
            add(line, line.results, -1, diff);
          }
          add(line, values, 1, diff);
        }
        if (!same || !Arrays.equals(save, line.saved)) {
          state.put(line.key, plan.kept(values, save));
        }
      }
    }

    /** Values of a running function; adds its state after each line to {@code saved}. */
    private Object[] run(
        WindowFunction call, Partition p, int from, int to, StateBytes.In before, StateBytes.Out[] saved) {
      WindowFunction.Running running = call.running();
      if (before != null) {
        running.read(before);
      }
      Object[] out = new Object[to - from];
      for (int i = from; i < to; ) {
        int end = call.byPeers() ? p.peersTo(i) : i + 1;
        System.arraycopy(running.next(p, i, end), 0, out, i - from, end - i);
        for (; i < end; i++) {
          if (plan.saving) {
            if (saved[i - from] == null) {
              saved[i - from] = new StateBytes.Out();
            }
            running.write(saved[i - from]);
          }
        }
      }
      return out;
    }

    /** Adds the result of a line, or reports the line if it has none. */
    private void add(Line line, Object[] values, long weight, Map<Row, Long> diff) {
      GroupErrors.Failed failed = plan.errors == null ? null : GroupErrors.first(values);
      if (failed == null) {
        diff.merge(result(line, values), weight, Long::sum);
      } else {
        plan.errors.report(failed, i -> line.values[plan.data[i]], weight);
      }
    }

    private Row result(Line line, Object[] values) {
      Object[] all = new Object[plan.data.length + values.length];
      for (int i = 0; i < plan.data.length; i++) {
        all[i] = line.values[plan.data[i]];
      }
      System.arraycopy(values, 0, all, plan.data.length, values.length);
      return RowFactory.create(all);
    }
  }
}
