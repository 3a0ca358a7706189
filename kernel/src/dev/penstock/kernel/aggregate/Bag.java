package dev.penstock.kernel.aggregate;

import dev.penstock.kernel.state.OrderKey;
import dev.penstock.kernel.state.OrderKey.Key;
import dev.penstock.kernel.state.StateBytes;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Function;

/**
 * The values of a group as an ordered multiset: for MODE, PERCENTILE and COLLECT_SET, and the basis of retractable MIN/MAX and
 * DISTINCT.
 *
 * <p>Each distinct value is held once with its count. Counts may be negative in a bag of changes; a result uses only
 * values whose count is above zero. Arguments after the counted ones are constants of the call (the fraction of a
 * percentile) and kept once.
 */
final class Bag implements Accumulator {
  private final OrderKey order;
  private final OrderKey constants;
  private final int[] counted;
  private final int[] skipNull;
  private final Function<Bag, Object> finish;
  private final TreeMap<Key, Long> counts = new TreeMap<>();
  private Key constant;

  /**
   * @param counted ordinals of the arguments that make up a value, in the order of the fields of {@code order}
   * @param skipNull ordinals of the arguments that must not be NULL
   * @param constants key over the remaining arguments, or null if there are none
   */
  Bag(OrderKey order, int[] counted, int[] skipNull, OrderKey constants, Function<Bag, Object> finish) {
    this.order = order;
    this.counted = counted;
    this.skipNull = skipNull;
    this.constants = constants;
    this.finish = finish;
  }

  @Override
  public void add(Object[] args, long weight) {
    if (constants != null && constant == null) {
      constant = constants.encode(Arrays.copyOfRange(args, counted.length, args.length));
    }
    for (int i : skipNull) {
      if (args[i] == null) {
        return;
      }
    }
    Object[] value = new Object[counted.length];
    for (int i = 0; i < value.length; i++) {
      value[i] = args[counted[i]];
    }
    count(order.encode(value), weight);
  }

  private void count(Key key, long weight) {
    counts.merge(key, weight, (a, b) -> a + b == 0 ? null : (Long) (a + b));
  }

  @Override
  public void merge(Accumulator other) {
    Bag o = (Bag) other;
    if (constant == null) {
      constant = o.constant;
    }
    o.counts.forEach(this::count);
  }

  @Override
  public void write(StateBytes.Out out) {
    if (constants != null) {
      out.bool(constant != null);
      if (constant != null) {
        out.blob(constant.bytes());
      }
    }
    out.varint(counts.size());
    counts.forEach((key, n) -> {
      out.blob(key.bytes());
      out.varint(n);
    });
  }

  @Override
  public void read(StateBytes.In in) {
    counts.clear();
    constant = constants != null && in.bool() ? constants.encode(constants.decode(in.blob())) : null;
    for (long left = in.varint(); left > 0; left--) {
      Key key = order.encode(order.decode(in.blob()));
      counts.put(key, in.varint());
    }
  }

  @Override
  public int size() {
    return counts.size();
  }

  @Override
  public Object result() {
    return finish.apply(this);
  }

  Map<Key, Long> counts() {
    return counts;
  }

  Object[] decode(Key key) {
    return order.decode(key);
  }

  /** The values of the arguments after the counted ones. */
  Object[] constants() {
    return constant == null ? new Object[0] : constants.decode(constant);
  }

  /** Column {@code at} of the smallest value, or null. */
  Object least(int at) {
    for (Map.Entry<Key, Long> e : counts.entrySet()) {
      if (e.getValue() > 0) {
        return order.decode(e.getKey())[at];
      }
    }
    return null;
  }

  /** The most frequent value; among several the first in order. */
  Object mode() {
    Key best = null;
    long most = 0;
    for (Map.Entry<Key, Long> e : counts.entrySet()) {
      if (e.getValue() > most) {
        most = e.getValue();
        best = e.getKey();
      }
    }
    return best == null ? null : order.decode(best)[0];
  }

  /** The distinct values in order. */
  Object set() {
    List<Object> out = new ArrayList<>();
    counts.forEach((key, n) -> {
      if (n > 0) {
        out.add(order.decode(key)[0]);
      }
    });
    return scala.jdk.javaapi.CollectionConverters.asScala(out).toSeq();
  }
}
