package dev.penstock.kernel.aggregate;

import dev.penstock.kernel.state.OrderKey.Key;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/**
 * PERCENTILE, MEDIAN, PERCENTILE_CONT (between two values), PERCENTILE_DISC and APPROX_PERCENTILE (one of the values).
 *
 * <p>The fraction is a constant, or an array of constants, which returns an array. The bag has the order of the
 * call, so DESC needs no handling here. Without a value the result is NULL.
 */
final class Percentile {
  private Percentile() {}

  /** PERCENTILE and PERCENTILE_CONT: linear between the two neighbours of position fraction · (n − 1). */
  static Object between(Bag bag) {
    return each(bag, true, 0.5);
  }

  /** PERCENTILE_DISC: the first value that at least the fraction of all values does not exceed. */
  static Object one(Bag bag) {
    return each(bag, false, 0.5);
  }

  private static Object each(Bag bag, boolean between, double otherwise) {
    List<Object> values = new ArrayList<>();
    List<Long> ends = new ArrayList<>();
    long n = 0;
    for (Map.Entry<Key, Long> e : bag.counts().entrySet()) {
      if (e.getValue() > 0) {
        n += e.getValue();
        values.add(bag.decode(e.getKey())[0]);
        ends.add(n);
      }
    }
    if (n == 0) {
      return null;
    }
    Object[] constants = bag.constants();
    Object fraction = constants.length == 0 ? (Object) otherwise : constants[0];
    if (fraction instanceof scala.collection.Seq<?> several) {
      List<Object> out = new ArrayList<>();
      for (Object f : scala.jdk.javaapi.CollectionConverters.asJava(several)) {
        out.add(at(values, ends, n, (Double) f, between));
      }
      return scala.jdk.javaapi.CollectionConverters.asScala(out).toSeq();
    }
    return fraction == null ? null : at(values, ends, n, (Double) fraction, between);
  }

  private static Object at(List<Object> values, List<Long> ends, long n, double fraction, boolean between) {
    if (!between) {
      return nth(values, ends, Math.max(0, (long) Math.ceil(fraction * n) - 1));
    }
    double position = (n - 1) * fraction;
    long lower = (long) Math.floor(position);
    long higher = (long) Math.ceil(position);
    double a = ((Number) nth(values, ends, lower)).doubleValue();
    double b = ((Number) nth(values, ends, higher)).doubleValue();
    return lower == higher || a == b ? a : (higher - position) * a + (position - lower) * b;
  }

  private static Object nth(List<Object> values, List<Long> ends, long index) {
    int found = java.util.Collections.binarySearch(ends, index + 1);
    return values.get(found >= 0 ? found : -found - 1);
  }
}
