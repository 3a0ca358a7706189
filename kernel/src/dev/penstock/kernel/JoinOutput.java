package dev.penstock.kernel;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;

/** What a join puts out for one key in one epoch. Consolidated: no row twice, no weight of zero. */
final class JoinOutput {
  private final List<Row> rows = new ArrayList<>();
  private final Map<JoinRow, long[]> sums;

  /** @param repeats whether the same output row may be added more than once, and has to be summed up */
  JoinOutput(boolean repeats) {
    sums = repeats ? new LinkedHashMap<>() : null;
  }

  void add(byte[] left, byte[] right, long weight) {
    if (weight == 0) {
      return;
    }
    if (sums == null) {
      rows.add(RowFactory.create(left, right, weight));
    } else {
      sums.computeIfAbsent(new JoinRow(left, right, 0), k -> new long[1])[0] += weight;
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
