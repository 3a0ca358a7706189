package dev.penstock.kernel.join;

import dev.penstock.kernel.row.Combining;
import dev.penstock.kernel.row.PackedRow;
import java.util.Iterator;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;

/**
 * Combines packed rows of one side of a join: the right side of a semi or anti join, which is reduced to its keys, so a key that occurs a
 * thousand times is shuffled once.
 */
final class JoinCombiner extends Combining<PackedRow> {
  JoinCombiner(Iterator<Row> source) {
    super(source, 1);
  }

  @Override
  protected PackedRow key(Row row) {
    return new PackedRow((byte[]) row.get(JoinPlan.ROW), (byte[]) row.get(JoinPlan.KEY), row.getInt(JoinPlan.SIDE));
  }

  @Override
  protected void add(Row row, long[] sums) {
    sums[0] += row.getLong(JoinPlan.WEIGHT);
  }

  @Override
  protected Row row(PackedRow key, long[] sums) {
    return RowFactory.create(key.beside(), (int) key.at(), 0L, 0L, sums[0], key.row());
  }
}
