package dev.penstock.kernel.state;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.KeyValueGroupedDataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.types.StructType;

/**
 * The keyed part of an operator: the work before the shuffle, the key, and the processor of the groups.
 *
 * <p>By default this becomes one of Spark's operators. With {@code hosted} in the operator's description it becomes a {@link KeyedPlan},
 * which a shared job executes together with those of other queries.
 *
 * @param combine combines rows of a task before the shuffle; null: rows are shuffled unchanged
 * @param travels schema of the shuffled rows
 * @param key schema of the grouping key
 * @param leading whether the key consists of the leading columns of the rows
 * @param keyOf computes the key of a row; not needed if the key is leading
 * @param processor gets its keys as rows or, if {@code binary}, as the bytes of their only column
 * @param output schema of the processor's rows
 */
public record Keyed(
    MapPartitionsFunction<Row, Row> combine,
    StructType travels,
    StructType key,
    boolean leading,
    MapFunction<Row, Row> keyOf,
    StatefulProcessor<?, Row, Row> processor,
    boolean binary,
    StructType output)
    implements Serializable {

  /** The number of a described operator in its query. */
  public static int number(JsonNode spec) {
    return spec.path("operator").asInt();
  }

  /** Whether the description is that of an operator in a shared job. */
  public static boolean hosted(JsonNode spec) {
    return spec.path("hosted").asBoolean();
  }

  /** Grouped by the leading columns of the shuffled rows. */
  public static Keyed leading(
      MapPartitionsFunction<Row, Row> combine, StructType travels, StructType key,
      StatefulProcessor<Row, Row, Row> processor, StructType output) {
    return new Keyed(combine, travels, key, true, null, processor, false, output);
  }

  /** Grouped by a function of the row. */
  public static Keyed by(
      MapPartitionsFunction<Row, Row> combine, StructType travels, StructType key, MapFunction<Row, Row> keyOf,
      StatefulProcessor<Row, Row, Row> processor, StructType output) {
    return new Keyed(combine, travels, key, false, keyOf, processor, false, output);
  }

  /** Grouped by the bytes of the first column of the shuffled rows, in a member of a shared job. */
  public static Dataset<Row> hosted(
      Dataset<Row> in, MapPartitionsFunction<Row, Row> combine, StructType travels,
      StatefulProcessor<byte[], Row, Row> processor, StructType output, int number) {
    StructType key = new StructType().add(travels.apply(0));
    return KeyedPlan.of(in, new Keyed(combine, travels, key, true, null, processor, true, output), number);
  }

  /** Applies the operator to a frame. */
  public Dataset<Row> over(Dataset<Row> in, JsonNode spec) {
    return over(in, spec, TimeMode.None());
  }

  /** Applies the operator to a frame; {@code time} says whether its processor has timers. */
  public Dataset<Row> over(Dataset<Row> in, JsonNode spec, TimeMode time) {
    @SuppressWarnings("unchecked")
    StatefulProcessor<Row, Row, Row> own = (StatefulProcessor<Row, Row, Row>) processor;
    boolean atOnce = spec.path("atOnce").asBoolean();
    if (hosted(spec)) {
      return KeyedPlan.of(in, atOnce ? with(new AtOnce<>(own).alone()) : this, number(spec));
    }
    KeyValueGroupedDataset<Row, Row> groups = grouped(in);
    return atOnce
        ? groups.flatMapGroups(new AtOnce<>(own), Encoders.row(output))
        : groups.transformWithState(
            StateSize.counted(spec.path("size").asLong(), KeyBytes.rows(key), own), time, OutputMode.Append(),
            Encoders.row(output));
  }

  private Keyed with(StatefulProcessor<Row, Row, Row> other) {
    return new Keyed(combine, travels, key, leading, keyOf, other, binary, output);
  }

  /** The processor's output for the rows of a group. */
  @SuppressWarnings("unchecked")
  public scala.collection.Iterator<Row> process(
      Row group, scala.collection.Iterator<Row> rows, TimerValues timers) {
    Object own = binary ? group.get(0) : group;
    return ((StatefulProcessor<Object, Row, Row>) processor).handleInputRows(own, rows, timers);
  }

  /** The processor's output for an expired timer of a group. */
  @SuppressWarnings("unchecked")
  public scala.collection.Iterator<Row> expire(Row group, TimerValues timers, ExpiredTimerInfo timer) {
    Object own = binary ? group.get(0) : group;
    return ((StatefulProcessor<Object, Row, Row>) processor).handleExpiredTimer(own, timers, timer);
  }

  private KeyValueGroupedDataset<Row, Row> grouped(Dataset<Row> in) {
    Dataset<Row> rows = combine == null ? in : in.mapPartitions(combine, Encoders.row(travels));
    if (!leading) {
      return rows.groupByKey(keyOf, Encoders.row(key));
    }
    Column[] columns = new Column[key.size()];
    for (int i = 0; i < columns.length; i++) {
      columns[i] = functions.col("`" + key.apply(i).name().replace("`", "``") + "`");
    }
    return rows.groupBy(columns).as(Encoders.row(key), Encoders.row(travels));
  }
}
