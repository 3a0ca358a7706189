package dev.penstock.kernel.join;

import dev.penstock.kernel.row.PackedRow;
import dev.penstock.kernel.state.Moment;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;

/**
 * The output of a join for one key in one epoch, consolidated: no row twice, no weight of zero. If rows are never retracted,
 * so that weights are not read, a row of weight n is emitted n times.
 */
final class JoinOutput {
  private final List<Row> rows = new ArrayList<>();
  private final Map<PackedRow, long[]> sums;

  private final boolean copies;
  private final boolean moments;
  private long watermark = Moment.ON_TIME.watermark();

  JoinOutput(boolean repeats, boolean copies) {
    this(repeats, copies, false);
  }

  /**
   * @param repeats whether the same output row may be added more than once, so that weights must be summed
   * @param copies whether a row of weight n is emitted n times
   * @param moments whether rows are emitted with the watermark of the moment that caused them
   */
  JoinOutput(boolean repeats, boolean copies, boolean moments) {
    this.copies = copies;
    this.moments = moments;
    sums = repeats && !copies ? new LinkedHashMap<>() : null;
  }

  /** Sets the moment of the rows that cause the following output. */
  void at(Moment moment) {
    watermark = moment.watermark();
  }

  void add(byte[] left, byte[] right, long weight) {
    if (weight == 0) {
      return;
    }
    if (copies) {
      for (long i = 0; i < weight; i++) {
        rows.add(row(left, right, 1, watermark));
      }
    } else if (sums == null) {
      rows.add(row(left, right, weight, watermark));
    } else {
      sums.computeIfAbsent(new PackedRow(left, right, watermark), k -> new long[1])[0] += weight;
    }
  }

  private Row row(byte[] left, byte[] right, long weight, long at) {
    if (!moments) {
      return RowFactory.create(left, right, weight);
    }
    return RowFactory.create(left, right, weight, at == Moment.ON_TIME.watermark() ? null : at);
  }

  scala.collection.Iterator<Row> iterator() {
    if (sums != null) {
      sums.forEach((row, sum) -> {
        if (sum[0] != 0) {
          rows.add(row(row.row(), row.beside(), sum[0], row.at()));
        }
      });
    }
    return scala.jdk.javaapi.CollectionConverters.asScala(rows.iterator());
  }
}
