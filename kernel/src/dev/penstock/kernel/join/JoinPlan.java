package dev.penstock.kernel.join;

import dev.penstock.kernel.row.Pack;
import dev.penstock.kernel.row.Unpack;
import dev.penstock.kernel.state.AtOnce;
import dev.penstock.kernel.state.Keyed;
import dev.penstock.kernel.state.Moment;
import dev.penstock.kernel.state.StateSize;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.KeyValueGroupedDataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * The plan around every join processor: it packs and unites both sides before the processor, and unpacks its output.
 *
 * <p>The processor's input has the columns of {@link #INPUT}: the packed key, the side, the time, the arrival number, the
 * weight, the packed row and, if the sides have them, the two columns of the row's {@link Moment}. Rows of a key are shuffled together, as a {@link Bundle}. A row that can match nothing (its key or time is NULL) has the side
 * {@link #LEFT_ALONE} or {@link #RIGHT_ALONE} and its own bytes as its key, so such rows are spread over the partitions.
 *
 * <p>Event time: all operators of a query have one watermark, the smallest over its {@code withWatermark} nodes
 * ({@code spark.sql.streaming.multipleWatermarkPolicy = min}). It reaches a processor after a union even without an event-time
 * column in its input. Because this plan drops that column, Spark filters no late rows; the processors decide which rows
 * are late.
 */
public final class JoinPlan {
  static final int LEFT = 0;
  static final int RIGHT = 1;
  static final int LEFT_ALONE = 2;
  static final int RIGHT_ALONE = 3;

  static final int KEY = 0;
  static final int SIDE = 1;
  static final int TIME = 2;
  static final int SEQUENCE = 3;
  static final int WEIGHT = 4;
  static final int ROW = 5;
  static final int LSN = 6;
  static final int BEFORE = 7;

  /** The input of a processor. */
  static final StructType INPUT = new StructType()
      .add("__key", DataTypes.BinaryType, false)
      .add("__side", DataTypes.IntegerType, false)
      .add("__time", DataTypes.LongType, true)
      .add("__sequence", DataTypes.LongType, false)
      .add("__count", DataTypes.LongType, false)
      .add("__row", DataTypes.BinaryType, false);

  /** The output column with the watermark that was in force for the late row that caused the output; NULL for all other rows. */
  static final String WATERMARK = "__pwm";

  /** The output of a processor. */
  public static final StructType OUTPUT = new StructType()
      .add("__left", DataTypes.BinaryType, true)
      .add("__right", DataTypes.BinaryType, true)
      .add("__weight", DataTypes.LongType, false);

  private JoinPlan() {}

  /** The output of a processor that handles late rows by their moments, if the sides have these. */
  static StructType output(JoinSpec spec) {
    return spec.moments ? OUTPUT.add(WATERMARK, DataTypes.LongType, true) : OUTPUT;
  }

  /** The names of the columns of {@link #output} that are not in {@link #OUTPUT}. */
  static String[] more(JoinSpec spec) {
    return spec.moments ? new String[] {WATERMARK} : new String[0];
  }

  /** The moment of a row. */
  static Moment moment(Row row) {
    return row.length() <= LSN || row.isNullAt(LSN) ? Moment.ON_TIME : new Moment(row.getLong(LSN), row.getLong(BEFORE));
  }

  /** A column by its exact name. */
  public static Column column(String name) {
    return functions.col("`" + name.replace("`", "``") + "`");
  }

  /** The schema of some columns of a frame, all nullable. */
  public static StructType schema(Dataset<Row> frame, List<String> names) {
    StructType all = frame.schema();
    StructType chosen = new StructType();
    for (String name : names) {
      chosen = chosen.add(name, all.apply(name).dataType(), true);
    }
    return chosen;
  }

  /**
   * One side as processor input.
   *
   * @param time the column with the side's time, or null if the join has none
   * @param alone whether to keep rows that can match nothing
   * @param sequenced whether the order of arrival within an epoch matters
   * @param moment the two columns of the row's moment, or none
   */
  static Dataset<Row> side(
      JoinSpec spec, Dataset<Row> frame, int side, List<String> keys, boolean[] nullSafe, List<String> columns, String time,
      String weight, boolean alone, boolean sequenced, List<String> moment) {
    List<Column> parts = new ArrayList<>();
    Column lost = functions.lit(false);
    for (int i = 0; i < keys.size(); i++) {
      Column key = column(keys.get(i));
      DataType type = frame.schema().apply(keys.get(i)).dataType();
      if (nullSafe[i]) {
        parts.add(key.isNull());
      } else {
        lost = lost.or(key.isNull());
      }
      parts.add(Pack.comparable(key, type));
    }
    Column at = functions.lit(0L);
    if (time != null) {
      at = column(time).cast("bigint");
      lost = lost.or(column(time).isNull());
    }
    List<Column> row = new ArrayList<>();
    columns.forEach(name -> row.add(column(name)));
    Column packed = Pack.of(Pack.Mode.ROW, row);
    Column key = Pack.of(Pack.Mode.KEY, parts);
    Column found = functions.not(lost);
    if (!spec.hosted) {
      // Spark would push a deterministic condition below withWatermark, and the rows that it drops there would not
      // advance the watermark.
      found = found.or(Pack.of(Pack.Mode.SEQUENCE, List.of()).lt(0L));
    }
    Dataset<Row> wanted = alone ? frame : frame.where(found);
    Column spread = alone ? functions.when(lost, packed).otherwise(key) : key;
    Column flag = alone ? functions.when(lost, side + 2).otherwise(side) : functions.lit(side);
    Column order = sequenced ? Pack.of(Pack.Mode.SEQUENCE, List.of()) : functions.lit(0L);
    Column count = weight == null ? functions.lit(1L) : column(weight);
    List<Column> select = new ArrayList<>(List.of(
        spread.as("__key"), flag.cast("int").as("__side"), at.as("__time"), order.as("__sequence"),
        count.as("__count"), packed.as("__row")));
    moment.forEach(name -> select.add(column(name)));
    return wanted.select(select.toArray(new Column[0]));
  }

  /** The side with equal rows combined; times and the order of arrival are lost. */
  static Dataset<Row> combined(Dataset<Row> side) {
    return side.mapPartitions((MapPartitionsFunction<Row, Row>) JoinCombiner::new, Encoders.row(INPUT));
  }

  /** Runs a processor over both sides; returns its packed output. */
  static Dataset<Row> run(
      JoinSpec spec, Dataset<Row> left, Dataset<Row> right, StatefulProcessor<byte[], Row, Row> processor,
      TimeMode time, StructType output) {
    boolean moments = left.columns().length > INPUT.size();
    StatefulProcessor<byte[], Row, Row> own = new Unbundled(processor, moments);
    if (spec.hosted) {
      return Keyed.hosted(left.union(right), new Bundling(), Bundle.SCHEMA, own, output, spec.operator);
    }
    KeyValueGroupedDataset<byte[], Row> groups = BundlePlan.of(left)
        .union(BundlePlan.of(right))
        .groupBy(functions.col("__key"))
        .as(Encoders.BINARY(), Encoders.row(Bundle.SCHEMA));
    return spec.atOnce
        ? groups.flatMapGroups(new AtOnce<>(own), Encoders.row(output))
        : groups.transformWithState(
            StateSize.counted(spec.size, key -> key, own), time, OutputMode.Append(), Encoders.row(output));
  }

  /** The columns of both sides ({@code right} null: only the left), then {@code more}, then the weight. */
  public static Dataset<Row> unpack(Dataset<Row> packed, StructType left, StructType right, String... more) {
    List<Column> structs = new ArrayList<>();
    structs.add(Unpack.of(functions.col("__left"), left).as("__left"));
    if (right != null) {
      structs.add(Unpack.of(functions.col("__right"), right).as("__right"));
    }
    for (String name : more) {
      structs.add(column(name));
    }
    structs.add(functions.col("__weight"));
    List<Column> flat = new ArrayList<>();
    for (String name : left.fieldNames()) {
      flat.add(functions.col("__left").getField(name).as(name));
    }
    if (right != null) {
      for (String name : right.fieldNames()) {
        flat.add(functions.col("__right").getField(name).as(name));
      }
    }
    for (String name : more) {
      flat.add(column(name));
    }
    flat.add(functions.col("__weight"));
    return packed.select(structs.toArray(new Column[0])).select(flat.toArray(new Column[0]));
  }
}
