package dev.penstock.kernel.aggregate;

import dev.penstock.kernel.row.Zero;
import dev.penstock.kernel.state.OrderKey;
import dev.penstock.kernel.state.StateBytes;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Comparator;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.NumericType;
import org.apache.spark.sql.types.StringType;

/**
 * MIN, MAX, MIN_BY, MAX_BY, FIRST, LAST and ANY_VALUE over rows that are never retracted: one row is kept.
 *
 * <p>The first four ignore rows whose last argument (the compared one) is NULL; the others do so if
 * requested. Ties: MIN_BY and MAX_BY keep the first row to arrive.
 */
final class Best implements Accumulator {
  enum Keep { LEAST, GREATEST, FIRST, LAST }

  private final Keep keep;
  private final boolean skipNulls;
  private final OrderKey codec;
  private final Comparator<Object> order;
  private Object[] best;

  Best(Keep keep, boolean skipNulls, DataType[] types) {
    this.keep = keep;
    this.skipNulls = skipNulls;
    this.codec = OrderKey.of(Arrays.stream(types).map(OrderKey.Field::asc).toList());
    this.order = keep == Keep.LEAST || keep == Keep.GREATEST ? comparator(types[types.length - 1]) : null;
  }

  /** The order of a type's values in wire form, which MIN and MAX use. */
  @SuppressWarnings("unchecked")
  static Comparator<Object> comparator(DataType type) {
    if (type instanceof NumericType || type instanceof BooleanType) {
      return (a, b) -> ((Comparable<Object>) a).compareTo(b);
    } else if (type instanceof StringType) {
      return (a, b) -> Arrays.compareUnsigned(
          ((String) a).getBytes(StandardCharsets.UTF_8), ((String) b).getBytes(StandardCharsets.UTF_8));
    }
    OrderKey key = OrderKey.of(OrderKey.Field.asc(type));
    return (a, b) -> key.encode(a).compareTo(key.encode(b));
  }

  @Override
  public void add(Object[] args, long weight) {
    if (weight <= 0) {
      throw new IllegalStateException("a retraction reached an aggregate of append-only rows");
    }
    Object compared = args[args.length - 1];
    if (compared == null && skipNulls) {
      return;
    }
    boolean better = best == null || switch (keep) {
      case LEAST -> order.compare(compared, best[best.length - 1]) < 0;
      case GREATEST -> order.compare(compared, best[best.length - 1]) > 0;
      case FIRST -> false;
      case LAST -> true;
    };
    if (better) {
      best = args.clone();
    }
  }

  @Override
  public void merge(Accumulator other) {
    Object[] theirs = ((Best) other).best;
    if (theirs != null) {
      add(theirs, 1);
    }
  }

  @Override
  public void write(StateBytes.Out out) {
    out.bool(best != null);
    if (best != null) {
      out.blob(codec.encode(best).bytes());
    }
  }

  @Override
  public void read(StateBytes.In in) {
    best = in.bool() ? codec.decode(in.blob()) : null;
  }

  @Override
  public Object result() {
    return best == null ? null : Zero.positive(best[0]);
  }
}
