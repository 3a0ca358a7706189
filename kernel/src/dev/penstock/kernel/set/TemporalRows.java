package dev.penstock.kernel.set;

import dev.penstock.kernel.row.Zero;
import java.util.Iterator;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;

/** Converts rows to the input of a {@link TemporalFilterProcessor}: columns, enter, exit, weight. */
final class TemporalRows implements MapPartitionsFunction<Row, Row> {
  private static final long serialVersionUID = 1L;

  private final int[] columns;
  private final int weightAt;
  private final int enterAt;
  private final int exitAt;

  /** Ordinals; -1 if there is no such column. */
  TemporalRows(int[] columns, int weightAt, int enterAt, int exitAt) {
    this.columns = columns;
    this.weightAt = weightAt;
    this.enterAt = enterAt;
    this.exitAt = exitAt;
  }

  @Override
  public Iterator<Row> call(Iterator<Row> rows) {
    return new Iterator<>() {
      @Override
      public boolean hasNext() {
        return rows.hasNext();
      }

      @Override
      public Row next() {
        Row row = rows.next();
        int n = Math.max(1, columns.length);
        Object[] values = new Object[n + 3];
        values[0] = 0;
        for (int i = 0; i < columns.length; i++) {
          values[i] = Zero.positive(row.get(columns[i]));
        }
        values[n] = enterAt < 0 ? null : row.get(enterAt);
        values[n + 1] = exitAt < 0 ? null : row.get(exitAt);
        values[n + 2] = weightAt < 0 ? 1L : row.getLong(weightAt);
        return RowFactory.create(values);
      }
    };
  }
}
