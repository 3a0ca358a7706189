package dev.penstock.kernel.aggregate;

import dev.penstock.kernel.row.Zero;
import dev.penstock.kernel.state.OrderKey;
import dev.penstock.kernel.state.StateBytes;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.DataType;

/**
 * All rows with the largest, or smallest, last argument, as an array of structs of the
 * other arguments; over rows that are never retracted.
 *
 * <p>Rows whose last argument is NULL are ignored. The array has no order. State: the rows of the result.
 */
final class Peers implements Accumulator {
  private final boolean greatest;
  private final OrderKey codec;
  private final Comparator<Object> order;
  private final List<Object[]> rows = new ArrayList<>();

  Peers(boolean greatest, DataType[] types) {
    this.greatest = greatest;
    this.codec = OrderKey.of(Arrays.stream(types).map(OrderKey.Field::asc).toList());
    this.order = Best.comparator(types[types.length - 1]);
  }

  @Override
  public void add(Object[] args, long weight) {
    if (weight <= 0) {
      throw new IllegalStateException("a retraction reached an aggregate of append-only rows");
    }
    int last = args.length - 1;
    if (args[last] == null) {
      return;
    }
    args[last] = Zero.positive(args[last]);
    if (!rows.isEmpty()) {
      int c = order.compare(args[last], rows.get(0)[last]);
      if (c != 0) {
        if (c > 0 != greatest) {
          return;
        }
        rows.clear();
      }
    }
    for (long i = 0; i < weight; i++) {
      rows.add(args);
    }
  }

  @Override
  public void merge(Accumulator other) {
    ((Peers) other).rows.forEach(row -> add(row, 1));
  }

  @Override
  public void write(StateBytes.Out out) {
    out.varint(rows.size());
    rows.forEach(row -> out.blob(codec.encode(row).bytes()));
  }

  @Override
  public void read(StateBytes.In in) {
    rows.clear();
    for (long left = in.varint(); left > 0; left--) {
      rows.add(codec.decode(in.blob()));
    }
  }

  @Override
  public int size() {
    return rows.size();
  }

  @Override
  public Object result() {
    List<Object> out = new ArrayList<>();
    rows.forEach(row -> out.add(RowFactory.create(Arrays.copyOf(row, row.length - 1))));
    return scala.jdk.javaapi.CollectionConverters.asScala(out).toSeq();
  }
}
