package dev.penstock.kernel.join;

import dev.penstock.kernel.row.PackedRow;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;

/**
 * What a join puts out for one key in one epoch. Consolidated: no row twice, no weight of zero. Where nobody reads weights,
 * because rows are never taken back, a row of weight n comes out n times.
 */
final class JoinOutput {
  private final List<Row> rows = new ArrayList<>();
  private final Map<PackedRow, long[]> sums;

  private final boolean copies;

  /**
   * @param repeats whether the same output row may be added more than once, and has to be summed up
   * @param copies whether the weight of a row is the number of times that it comes out
   */
  JoinOutput(boolean repeats, boolean copies) {
    this.copies = copies;
    sums = repeats && !copies ? new LinkedHashMap<>() : null;
  }

  void add(byte[] left, byte[] right, long weight) {
    if (weight == 0) {
      return;
    }
    if (copies) {
      for (long i = 0; i < weight; i++) {
        rows.add(RowFactory.create(left, right, 1L));
      }
    } else if (sums == null) {
      rows.add(RowFactory.create(left, right, weight));
    } else {
      sums.computeIfAbsent(new PackedRow(left, right, 0), k -> new long[1])[0] += weight;
    }
  }

  scala.collection.Iterator<Row> iterator() {
    if (sums != null) {
      sums.forEach((row, sum) -> {
        if (sum[0] != 0) {
          rows.add(RowFactory.create(row.row(), row.beside(), sum[0]));
        }
      });
    }
    return scala.jdk.javaapi.CollectionConverters.asScala(rows.iterator());
  }
}
