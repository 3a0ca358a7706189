package dev.penstock.kernel.set;

import com.fasterxml.jackson.databind.JsonNode;
import dev.penstock.kernel.row.PhysicalRow;
import dev.penstock.kernel.state.Keyed;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * SELECT DISTINCT over a Z-set.
 *
 * <p>Contract: a row is in the output once while its total weight is above zero. NULLs are equal to NULLs, NaN to NaN,
 * -0.0 to 0.0. Over append-only input ({@code weight} null) a row is emitted once, with weight 1, when it is first
 * seen. State: one number per distinct row; append-only, one flag. Equal rows of a task are combined
 * before the shuffle.
 *
 * <p>Late rows: none. With {@code before}, the column with the watermark in force for a row of append-only input, a row is emitted
 * with the watermark of the first copy in place of the weight, and windows above compare it with that.
 */
public final class DistinctRows {
  private DistinctRows() {}

  /**
   * Adds the operator to a plan.
   *
   * @param specJson columns; weight (column name, null: append-only input); atOnce (equal rows come in one epoch, see {@link
   *     Keyed}); before (column name, or null)
   */
  public static Dataset<Row> apply(Dataset<Row> in, String specJson) {
    JsonNode spec = PhysicalRow.parse(specJson);
    PhysicalRow row = PhysicalRow.of(in.schema(), PhysicalRow.texts(spec, "columns"));
    String weight = PhysicalRow.text(spec, "weight");
    String before = PhysicalRow.text(spec, "before");
    int width = row.size();
    int[] all = IntStream.range(0, width).toArray();
    List<Column> columns = row.enterAsKey(weight);
    if (before != null) {
      columns.set(width, PhysicalRow.column(before));
    }
    MapPartitionsFunction<Row, Row> combined =
        before == null ? rows -> new Summed(rows, all) : rows -> new Earliest(rows, all);
    StructType schema = before == null ? row.weighted() : row.with(before);
    StatefulProcessor<Row, Row, Row> processor =
        weight == null ? new FirstSeen(width, before != null) : new Counted(width);
    Dataset<Row> out = Keyed.by(combined, schema, row.keySchema(all), r -> PhysicalRow.key(r, all), processor, schema)
        .over(in.select(columns.toArray(Column[]::new)), spec);
    return before == null ? row.leave(out) : row.leave(out, before);
  }

  /** Combines equal rows, with the smallest watermark. */
  private static final class Earliest extends EqualRows {
    Earliest(Iterator<Row> source, int[] all) {
      super(source, all, 2);
    }

    @Override
    protected void add(Row row, long[] sums) {
      long before = row.getLong(width);
      sums[1] = sums[0]++ == 0 ? before : Math.min(sums[1], before);
    }

    @Override
    protected Row row(Row key, long[] sums) {
      return PhysicalRow.weighted(key, width, sums[1]);
    }
  }

  /** Combines equal rows, with the sum of their weights. */
  private static final class Summed extends EqualRows {
    Summed(Iterator<Row> source, int[] all) {
      super(source, all, 1);
    }

    @Override
    protected void add(Row row, long[] sums) {
      sums[0] += row.getLong(width);
    }

    @Override
    protected Row row(Row key, long[] sums) {
      return PhysicalRow.weighted(key, width, sums[0]);
    }
  }

  private static scala.collection.Iterator<Row> one(Row row) {
    List<Row> out = new ArrayList<>(1);
    if (row != null) {
      out.add(row);
    }
    return CollectionConverters.asScala(out.iterator());
  }

  /** Append-only: notes that a row was seen. */
  private static final class FirstSeen extends StatefulProcessor<Row, Row, Row> {
    private static final long serialVersionUID = 1L;
    private final int width;
    private final boolean before;
    private transient ValueState<Boolean> seen;

    FirstSeen(int width, boolean before) {
      this.width = width;
      this.before = before;
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
      long last = before ? Long.MAX_VALUE : 1;
      while (before && rows.hasNext()) {
        last = Math.min(last, rows.next().getLong(width));
      }
      return one(PhysicalRow.weighted(key, width, last));
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
