package dev.penstock.kernel.aggregate;

import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.hash;
import static org.apache.spark.sql.functions.lit;
import static org.apache.spark.sql.functions.pmod;

import com.fasterxml.jackson.databind.JsonNode;
import dev.penstock.kernel.error.GroupErrors;
import dev.penstock.kernel.row.Input;
import dev.penstock.kernel.row.Wire;
import dev.penstock.kernel.state.Keyed;
import dev.penstock.kernel.state.KeyBytes;
import dev.penstock.kernel.state.OrderKey;
import dev.penstock.kernel.state.StateSize;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/**
 * GROUP BY over a Z-set.
 *
 * <p>Groups: a group exists while its rows' weights sum to more than zero. NULL keys group together, as do -0.0 and
 * 0.0, and NaN. Without keys there is one group. With
 * {@code always} a group remains when its rows are gone; a row of weight zero creates it and is otherwise ignored.
 *
 * <p>Output: the keys, the aggregates, {@code __weight}. Mode {@code changes}: per epoch and changed group the old row
 * with −1, then the new one with +1; nothing if the row is the same; only −1 if the group is gone. Mode {@code close}: the row
 * once, with +1, when its window closes.
 *
 * <p>Time: with {@code windowEnd} (a TIMESTAMP key, or BIGINT epoch milliseconds) a group closes when end + lateness ≤
 * watermark, to the millisecond, and its state is removed. A row for a closed window is late and
 * ignored. A window whose end is NULL never closes. {@code punctual}: the input has no late rows, only rows that an operator below
 * emits when the watermark advances; those for a window that is due are its last ones, and it closes with them.
 *
 * <p>Errors: with {@code errors} (see {@link GroupErrors}) a group with a value that overflows its type is reported by its keys instead of emitting a row.
 *
 * <p>Ties, NULLs and order inside a group: see {@link AggFunction}. Rows arrive in the order of the input's partitions.
 *
 * <p>State: one binary value per group, in mode close one for several ({@link WindowPages}); MIN, MAX, FIRST, LAST, MIN_BY, MAX_BY over changeable input and DISTINCT keep each
 * distinct value as one entry of an {@code OrderedMap}; the others of variable size (ARRAY_AGG, STRING_AGG, PERCENTILE, MODE,
 * COLLECT_SET) keep the values in the binary itself. Rows are combined before the shuffle.
 *
 * <p>Watermark in a chain: a processor in {@link TimeMode#EventTime} or {@link TimeMode#None} passes the query's watermark on
 * unchanged, so every operator of a chain sees the same one in the same epoch. No {@code eventTimeColumnName} is
 * needed as long as the next operator is also a kernel operator; output columns do not carry Spark's watermark metadata.
 */
public final class Aggregate {
  private Aggregate() {}

  static final String PART = "part";

  /** Applies the aggregate of {@code specJson} to {@code in}. */
  public static Dataset<Row> apply(Dataset<Row> in, String specJson) {
    JsonNode spec = Input.parse(specJson);
    List<String> keyNames = Input.texts(spec, "keys");
    String weight = Input.text(spec, "weight");
    String windowEnd = Input.text(spec, "windowEnd");
    boolean close = closes(spec);
    if (close && windowEnd == null) {
      throw new IllegalArgumentException("mode close needs windowEnd");
    }
    Input input = new Input(in);
    int[] keys = keyNames.stream().mapToInt(input::add).toArray();
    int weightAt = weight == null ? -1 : input.add(weight, DataTypes.LongType);
    List<AggFunction> functions = AggFunction.list(spec, input, weight == null, ansi(in));
    Combiner combiner = new Combiner(keys, weightAt, functions);

    StructType keySchema = input.keySchema(keys);
    StructType parts = keySchema.add(PART, DataTypes.BinaryType, false);
    int endAt = windowEnd == null ? -1 : keyNames.indexOf(windowEnd);
    if (windowEnd != null && endAt < 0) {
      throw new IllegalArgumentException("windowEnd " + windowEnd + " is not a key");
    }
    long unit = endAt < 0 || input.declared(windowEnd) instanceof LongType ? 1 : 1000;
    WindowEnd end = new WindowEnd(endAt, unit, spec.path("latenessMs").asLong());
    boolean punctual = spec.path("punctual").asBoolean();
    GroupErrors errors = errors(spec, input, keyNames);
    StructType results = results(keySchema, functions).add("__weight", DataTypes.LongType, false);
    boolean paged = close && paged(keySchema, functions);
    Keyed groups = paged
        ? pages(parts, keySchema, combiner, functions, end, punctual, errors, results)
        : Keyed.leading(
            combiner, parts, keySchema,
            new AggregateProcessor(combiner, functions, close, end, spec.path("always").asBoolean(), punctual, errors),
            results);
    Dataset<Row> out = paged && !Keyed.hosted(spec)
        ? bucketed(groups, input, keySchema, end, spec)
        : groups.over(input.dataset(), spec, windowEnd == null ? TimeMode.None() : TimeMode.EventTime());

    Column[] named = new Column[keys.length + functions.size() + 1];
    for (int i = 0; i < keys.length; i++) {
      named[i] = Wire.from(out.col("k" + i), input.declared(keyNames.get(i))).as(keyNames.get(i));
    }
    for (int i = 0; i < functions.size(); i++) {
      named[keys.length + i] = result(out, functions, i);
    }
    named[named.length - 1] = out.col("__weight");
    return out.select(named);
  }

  /** True if groups that close can be stored in pages: each is one value, and its key can be hashed. */
  private static boolean paged(StructType keys, List<AggFunction> functions) {
    return functions.stream().allMatch(f -> f.kept() == null) && !keys.existsRecursively(t -> t instanceof MapType);
  }

  private static Keyed pages(
      StructType parts, StructType keys, Combiner combiner, List<AggFunction> functions, WindowEnd end, boolean punctual,
      GroupErrors errors, StructType results) {
    int[] others = others(keys, end);
    OrderKey order =
        OrderKey.of(IntStream.of(others).mapToObj(i -> OrderKey.Field.asc(keys.apply(i).dataType())).toList());
    StructType key = new StructType()
        .add(keys.apply(end.at()))
        .add("bucket", DataTypes.IntegerType, false);
    return Keyed.by(
        combiner, parts, key, new PageOf(end.at(), order, others),
        new WindowPages(combiner, functions, end, punctual, order, others, errors), results);
  }

  private static int[] others(StructType keys, WindowEnd end) {
    return IntStream.range(0, keys.size()).filter(i -> i != end.at()).toArray();
  }

  /** Computes the page of a group in a shared job. */
  private record PageOf(int endAt, OrderKey order, int[] others) implements MapFunction<Row, Row> {
    @Override
    public Row call(Row group) {
      byte[] key = order.bytesAt(group, others);
      int hash = Murmur3_x86_32.hashUnsafeBytes(key, Platform.BYTE_ARRAY_OFFSET, key.length, 0);
      return RowFactory.create(group.get(endAt), Math.floorMod(hash, WindowPages.BUCKETS));
    }
  }

  /** Applies pages in a Spark query, which computes the page of a group with Spark's own expression. */
  private static Dataset<Row> bucketed(Keyed pages, Input input, StructType keys, WindowEnd end, JsonNode spec) {
    Column[] names = IntStream.of(others(keys, end)).mapToObj(i -> col("k" + i)).toArray(Column[]::new);
    Column bucket = names.length == 0 ? lit(0) : pmod(hash(names), lit(WindowPages.BUCKETS));
    List<Column> select = new ArrayList<>(List.of(Input.keyColumns(keys)));
    select.add(bucket.as("bucket"));
    select.add(col(PART));
    Dataset<Row> rows = input.dataset()
        .mapPartitions(pages.combine(), Encoders.row(pages.travels()))
        .select(select.toArray(Column[]::new));
    @SuppressWarnings("unchecked")
    StatefulProcessor<Row, Row, Row> processor = (StatefulProcessor<Row, Row, Row>) pages.processor();
    return rows
        .groupBy(Input.keyColumns(pages.key()))
        .as(Encoders.row(pages.key()), Encoders.row(rows.schema()))
        .transformWithState(
            StateSize.counted(spec.path("size").asLong(), KeyBytes.rows(pages.key()), processor), TimeMode.EventTime(),
            OutputMode.Append(), Encoders.row(pages.output()));
  }

  static boolean ansi(Dataset<Row> in) {
    return Boolean.parseBoolean(in.sparkSession().conf().get("spark.sql.ansi.enabled"));
  }

  /** Reports groups with a value that cannot be computed, by their keys and by bounds in microseconds. */
  static GroupErrors errors(JsonNode spec, Input input, List<String> keys, String... bounds) {
    StructType columns = new StructType();
    List<DataType> travels = new ArrayList<>();
    for (String key : keys) {
      DataType declared = input.declared(key);
      travels.add(Wire.type(declared));
      columns = columns.add(key, declared, true);
    }
    for (String bound : bounds) {
      travels.add(DataTypes.LongType);
      columns = columns.add(bound, DataType.fromDDL(spec.path("errors").path("bounds").asText("bigint")), true);
    }
    return GroupErrors.of(spec.path("errors"), columns, travels.toArray(DataType[]::new));
  }

  /** True for mode close, false for changes. */
  static boolean closes(JsonNode spec) {
    String mode = Input.text(spec, "mode");
    return switch (mode) {
      case "close" -> true;
      case "changes" -> false;
      default -> throw new IllegalArgumentException("no mode " + mode);
    };
  }

  /** {@code keySchema} and {@code g0, g1, …} in wire form. */
  static StructType results(StructType keySchema, List<AggFunction> functions) {
    StructType schema = keySchema;
    for (int i = 0; i < functions.size(); i++) {
      DataType type = Wire.type(functions.get(i).type);
      schema = schema.add("g" + i, type, true);
    }
    return schema;
  }

  static Column result(Dataset<Row> out, List<AggFunction> functions, int i) {
    return Wire.from(out.col("g" + i), functions.get(i).type).as(functions.get(i).name);
  }
}
