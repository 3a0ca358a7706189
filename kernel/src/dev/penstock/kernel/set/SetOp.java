package dev.penstock.kernel.set;

import com.fasterxml.jackson.databind.JsonNode;
import dev.penstock.kernel.row.PhysicalRow;
import dev.penstock.kernel.state.Keyed;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * EXCEPT [ALL], INTERSECT [ALL] and UNION DISTINCT of two Z-sets.
 *
 * <p>Contract: with l and r the multiplicities of a row on the two sides (below zero counts as zero), the output holds
 * it max(l − r, 0) times for {@code except all}, min(l, r) times for {@code intersect all}; once if l &gt; 0 = r for
 * {@code except}, if both are above zero for {@code intersect}, if one is for {@code union distinct}. NULLs are equal to
 * NULLs, NaN to NaN, -0.0 to 0.0. An epoch emits the change of the multiplicity. State: two numbers per
 * distinct row that is on either side.
 */
public final class SetOp {
  private SetOp() {}

  /**
   * Adds the operator to a plan.
   *
   * @param in the union of both sides
   * @param specJson kind; columns; weight (column name, null: every row counts 1); side (INT column, 0 left, 1 right)
   */
  public static Dataset<Row> apply(Dataset<Row> in, String specJson) {
    JsonNode spec = PhysicalRow.parse(specJson);
    PhysicalRow row = PhysicalRow.of(in.schema(), PhysicalRow.texts(spec, "columns"));
    int width = row.size();
    List<Column> columns = row.enterAsKey(null);
    String weight = PhysicalRow.text(spec, "weight");
    Column w = weight == null
        ? functions.lit(1L)
        : functions.coalesce(PhysicalRow.column(weight).cast("bigint"), functions.lit(0L));
    Column right = PhysicalRow.column(PhysicalRow.text(spec, "side")).equalTo(1);
    columns.set(width, functions.when(right, 0L).otherwise(w).as("__left"));
    columns.add(functions.when(right, w).otherwise(0L).as("__right"));
    StructType schema = row.inner.add("__left", DataTypes.LongType, false).add("__right", DataTypes.LongType, false);
    int[] all = java.util.stream.IntStream.range(0, width).toArray();
    Processor processor = new Processor(PhysicalRow.text(spec, "kind"), width);
    Dataset<Row> out = Keyed.by(
            rows -> new BothSides(rows, all), schema, row.keySchema(all), r -> PhysicalRow.key(r, all), processor,
            row.weighted())
        .over(in.select(columns.toArray(Column[]::new)), spec);
    return row.leave(out);
  }

  /** Combines equal rows, with the sums of their weights on both sides. */
  private static final class BothSides extends EqualRows {
    BothSides(Iterator<Row> source, int[] all) {
      super(source, all, 2);
    }

    @Override
    protected void add(Row row, long[] sums) {
      sums[0] += row.getLong(width);
      sums[1] += row.getLong(width + 1);
    }

    @Override
    protected Row row(Row key, long[] sums) {
      Object[] values = new Object[width + 2];
      for (int i = 0; i < width; i++) {
        values[i] = key.get(i);
      }
      values[width] = sums[0];
      values[width + 1] = sums[1];
      return RowFactory.create(values);
    }
  }

  /** Keeps the multiplicities of one row on both sides. */
  private static final class Processor extends StatefulProcessor<Row, Row, Row> {
    private static final long serialVersionUID = 1L;
    private static final StructType COUNTS =
        new StructType().add("l", DataTypes.LongType, false).add("r", DataTypes.LongType, false);

    private final String kind;
    private final int width;
    private transient ValueState<Row> counts;

    Processor(String kind, int width) {
      this.kind = kind;
      this.width = width;
      multiplicity(kind, 0, 0);
    }

    @Override
    public void init(OutputMode outputMode, TimeMode timeMode) {
      counts = getHandle().getValueState("counts", Encoders.row(COUNTS), TTLConfig.NONE());
    }

    @Override
    public scala.collection.Iterator<Row> handleInputRows(
        Row key, scala.collection.Iterator<Row> rows, TimerValues timers) {
      Row before = counts.get();
      long l = before == null ? 0 : before.getLong(0);
      long r = before == null ? 0 : before.getLong(1);
      long was = multiplicity(kind, l, r);
      while (rows.hasNext()) {
        Row row = rows.next();
        l += row.getLong(width);
        r += row.getLong(width + 1);
      }
      if (l != 0 || r != 0) {
        counts.update(RowFactory.create(l, r));
      } else if (before != null) {
        counts.clear();
      }
      long change = multiplicity(kind, l, r) - was;
      List<Row> out = new ArrayList<>(1);
      if (change != 0) {
        out.add(PhysicalRow.weighted(key, width, change));
      }
      return scala.jdk.javaapi.CollectionConverters.asScala(out.iterator());
    }

    private static long multiplicity(String kind, long left, long right) {
      long l = Math.max(left, 0);
      long r = Math.max(right, 0);
      return switch (kind) {
        case "except" -> l > 0 && r == 0 ? 1 : 0;
        case "except all" -> Math.max(l - r, 0);
        case "intersect" -> l > 0 && r > 0 ? 1 : 0;
        case "intersect all" -> Math.min(l, r);
        case "union distinct" -> l > 0 || r > 0 ? 1 : 0;
        default -> throw new IllegalArgumentException("unknown set operation: " + kind);
      };
    }
  }
}
