package dev.penstock.kernel.set;

import com.fasterxml.jackson.databind.JsonNode;
import dev.penstock.kernel.row.Combining;
import dev.penstock.kernel.row.PhysicalRow;
import dev.penstock.kernel.state.AtOnce;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.KeyValueGroupedDataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import scala.jdk.javaapi.CollectionConverters;

/**
 * SELECT DISTINCT over a Z-set.
 *
 * <p>Contract: a row is in the output once while its total weight is above zero. NULLs are equal to NULLs, NaN to NaN,
 * -0.0 to 0.0. Over append-only input ({@code weight} null) a row comes out the first time it is seen, with weight 1, and
 * never again. State: one number for each different row; append-only, one flag. Equal rows of a task are put together
 * before the shuffle.
 */
public final class DistinctRows {
  private DistinctRows() {}

  /**
   * Adds the operator to a plan.
   *
   * @param specJson columns; weight (column name, null: append-only input); atOnce (equal rows come in one epoch, see {@link
   *     AtOnce})
   */
  public static Dataset<Row> apply(Dataset<Row> in, String specJson) {
    JsonNode spec = PhysicalRow.parse(specJson);
    PhysicalRow row = PhysicalRow.of(in.schema(), PhysicalRow.texts(spec, "columns"));
    String weight = PhysicalRow.text(spec, "weight");
    int width = row.size();
    int[] all = IntStream.range(0, width).toArray();
    KeyValueGroupedDataset<Row, Row> grouped = in.select(row.enterAsKey(weight).toArray(Column[]::new))
        .mapPartitions(
            (MapPartitionsFunction<Row, Row>) rows -> new Combined(rows, all), Encoders.row(row.weighted()))
        .groupByKey((MapFunction<Row, Row>) r -> PhysicalRow.key(r, all), Encoders.row(row.keySchema(all)));
    return row.leave(
        AtOnce.or(spec, grouped, weight == null ? new FirstSeen(width) : new Counted(width), row.weighted()));
  }

  private static final class Combined extends Combining<Row> {
    private final int[] all;

    Combined(Iterator<Row> source, int[] all) {
      super(source, 1);
      this.all = all;
    }

    @Override
    protected Row key(Row row) {
      return PhysicalRow.key(row, all);
    }

    @Override
    protected void add(Row row, long[] sums) {
      sums[0] += row.getLong(all.length);
    }

    @Override
    protected Row row(Row key, long[] sums) {
      return PhysicalRow.weighted(key, all.length, sums[0]);
    }
  }

  private static scala.collection.Iterator<Row> one(Row row) {
    List<Row> out = new ArrayList<>(1);
    if (row != null) {
      out.add(row);
    }
    return CollectionConverters.asScala(out.iterator());
  }

  /** Append-only: remembers that a row was there. */
  private static final class FirstSeen extends StatefulProcessor<Row, Row, Row> {
    private static final long serialVersionUID = 1L;
    private final int width;
    private transient ValueState<Boolean> seen;

    FirstSeen(int width) {
      this.width = width;
    }

    @Override
    public void init(OutputMode outputMode, TimeMode timeMode) {
      seen = getHandle().getValueState("seen", Encoders.BOOLEAN(), TTLConfig.NONE());
    }

    @Override
    public scala.collection.Iterator<Row> handleInputRows(
        Row key, scala.collection.Iterator<Row> rows, TimerValues timers) {
      if (seen.exists()) {
        return one(null);
      }
      seen.update(true);
      return one(PhysicalRow.weighted(key, width, 1L));
    }
  }

  /** Keeps a row's total weight. */
  private static final class Counted extends StatefulProcessor<Row, Row, Row> {
    private static final long serialVersionUID = 1L;
    private final int width;
    private transient ValueState<Long> total;

    Counted(int width) {
      this.width = width;
    }

    @Override
    public void init(OutputMode outputMode, TimeMode timeMode) {
      total = getHandle().getValueState("total", Encoders.LONG(), TTLConfig.NONE());
    }

    @Override
    public scala.collection.Iterator<Row> handleInputRows(
        Row key, scala.collection.Iterator<Row> rows, TimerValues timers) {
      Long before = total.exists() ? total.get() : null;
      long now = before == null ? 0 : before;
      boolean was = now > 0;
      while (rows.hasNext()) {
        now += rows.next().getLong(width);
      }
      if (now != 0) {
        total.update(now);
      } else if (before != null) {
        total.clear();
      }
      return one(was == now > 0 ? null : PhysicalRow.weighted(key, width, was ? -1L : 1L));
    }
  }
}
