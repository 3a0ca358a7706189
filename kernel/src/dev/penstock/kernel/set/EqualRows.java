package dev.penstock.kernel.set;

import dev.penstock.kernel.row.Combining;
import dev.penstock.kernel.row.PhysicalRow;
import java.util.Iterator;
import org.apache.spark.sql.Row;

/** Combines rows that are equal in all their columns; the summed values follow these. */
abstract class EqualRows extends Combining<Row> {
  protected final int width;
  private final int[] all;

  EqualRows(Iterator<Row> source, int[] all, int sums) {
    super(source, sums);
    this.all = all;
    this.width = all.length;
  }

  @Override
  protected final Row key(Row row) {
    return PhysicalRow.key(row, all);
  }
}
