package dev.penstock.kernel.aggregate;

import dev.penstock.kernel.state.OrderKey;
import dev.penstock.kernel.state.OrderKey.Key;
import dev.penstock.kernel.state.OrderedMap;
import dev.penstock.kernel.state.StateBytes;
import java.io.Serializable;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * An aggregate whose values are separate entries of the state store, so the cost of a change does not depend on the size of the
 * group.
 *
 * <p>Besides the values there is a head, a small accumulator that has the result and is stored with the group. A Kept is
 * opened once per processor and then works on the current grouping key.
 */
interface Kept extends Serializable {
  /** Opens the maps; {@code name} is unique to them. */
  void open(StatefulProcessorHandle handle, String name);

  /** An empty head. */
  Accumulator head();

  /** Applies the changes of one epoch to the maps and the head. */
  void apply(Accumulator head, Accumulator change);

  /** Removes the values of the current group. */
  void clear();

  StructType COUNT = new StructType().add("n", DataTypes.LongType, false);

  /** The result as an encoded key, or nothing; and the number of rows so far, for numbering them. */
  final class Head implements Accumulator {
    private final OrderKey codec;
    private final int at;
    byte[] best;
    long next;

    Head(OrderKey codec, int at) {
      this.codec = codec;
      this.at = at;
    }

    @Override
    public void add(Object[] args, long weight) {
      throw new UnsupportedOperationException("a head is changed by its Kept, which has the values");
    }

    @Override
    public void merge(Accumulator other) {
      throw new UnsupportedOperationException("a head is changed by its Kept, which has the values");
    }

    @Override
    public void write(StateBytes.Out out) {
      out.varint(next);
      out.bool(best != null);
      if (best != null) {
        out.blob(best);
      }
    }

    @Override
    public void read(StateBytes.In in) {
      next = in.varint();
      best = in.bool() ? in.blob() : null;
    }

    @Override
    public Object result() {
      return best == null ? null : codec.decode(best)[at];
    }
  }

  /** MIN, MAX, MIN_BY, MAX_BY: a counted map in which the best value is first. */
  final class Extremum implements Kept {
    private static final long serialVersionUID = 1L;
    private final OrderKey order;
    private final int at;
    private transient OrderedMap map;

    Extremum(OrderKey order, int at) {
      this.order = order;
      this.at = at;
    }

    @Override
    public void open(StatefulProcessorHandle handle, String name) {
      map = OrderedMap.open(handle, name, COUNT);
    }

    @Override
    public Accumulator head() {
      return new Head(order, at);
    }

    @Override
    public void apply(Accumulator head, Accumulator change) {
      Head h = (Head) head;
      Key best = h.best == null ? null : order.encode(order.decode(h.best));
      boolean lost = false;
      for (Map.Entry<Key, Long> e : ((Bag) change).counts().entrySet()) {
        Key key = e.getKey();
        long now = count(map, key, e.getValue());
        if (now > 0 && (best == null || key.compareTo(best) < 0)) {
          best = key;
        } else if (now <= 0 && key.equals(best)) {
          lost = true;
        }
      }
      h.best = lost ? first() : best == null ? null : best.bytes();
    }

    private byte[] first() {
      try (OrderedMap.Entries all = map.iterate()) {
        while (all.hasNext()) {
          OrderedMap.Entry e = all.next();
          if (e.value().getLong(0) > 0) {
            return e.key().bytes();
          }
        }
        return null;
      }
    }

    @Override
    public void clear() {
      map.clear();
    }
  }

  /** An aggregate over distinct values: a counted map, with the aggregate of its keys as the head. */
  final class Different implements Kept {
    private static final long serialVersionUID = 1L;
    private final OrderKey order;
    private final Accumulator.Factory inner;
    private final boolean appendOnly;
    private transient OrderedMap map;

    Different(OrderKey order, Accumulator.Factory inner, boolean appendOnly) {
      this.order = order;
      this.inner = inner;
      this.appendOnly = appendOnly;
    }

    @Override
    public void open(StatefulProcessorHandle handle, String name) {
      map = OrderedMap.open(handle, name, COUNT);
    }

    @Override
    public Accumulator head() {
      return inner.create();
    }

    @Override
    public void apply(Accumulator head, Accumulator change) {
      for (Map.Entry<Key, Long> e : ((Distinct) change).values().counts().entrySet()) {
        Row row = map.get(e.getKey());
        if (row != null && appendOnly) {
          continue;
        }
        long before = row == null ? 0 : row.getLong(0);
        long now = before + e.getValue();
        set(map, e.getKey(), now);
        if (before <= 0 && now > 0) {
          head.add(order.decode(e.getKey()), 1);
        } else if (before > 0 && now <= 0) {
          head.add(order.decode(e.getKey()), -1);
        }
      }
    }

    @Override
    public void clear() {
      map.clear();
    }
  }

  /** FIRST and LAST: each distinct value with its count and the number of its first (last) row, and a map by number. */
  final class Edge implements Kept {
    private static final long serialVersionUID = 1L;
    private static final StructType NUMBERED = COUNT.add("seq", DataTypes.LongType, false);
    private static final StructType VALUE = new StructType().add("v", DataTypes.BinaryType, false);
    private final OrderKey values;
    private final OrderKey numbers;
    private final boolean last;
    private transient OrderedMap byValue;
    private transient OrderedMap byNumber;

    Edge(OrderKey values, boolean last) {
      this.values = values;
      this.last = last;
      this.numbers = OrderKey.of(new OrderKey.Field(DataTypes.LongType, last, true));
    }

    @Override
    public void open(StatefulProcessorHandle handle, String name) {
      byValue = OrderedMap.open(handle, name, NUMBERED);
      byNumber = OrderedMap.open(handle, name + "_seq", VALUE);
    }

    @Override
    public Accumulator head() {
      return new Head(values, 0);
    }

    @Override
    public void apply(Accumulator head, Accumulator change) {
      Head h = (Head) head;
      for (Listing.Item item : ((Listing) change).items()) {
        if (item.count != 0) {
          take(h, item);
        }
      }
      OrderedMap.Entry first = byNumber.first();
      h.best = first == null ? null : first.value().getAs(0);
    }

    private void take(Head h, Listing.Item item) {
      Row row = byValue.get(item.key);
      long before = row == null ? 0 : row.getLong(0);
      long seq = row == null ? -1 : row.getLong(1);
      long now = before + item.count;
      boolean moves = now <= 0 || before <= 0 || last && item.count > 0;
      if (moves && seq >= 0) {
        byNumber.remove(numbers.encode(seq));
        seq = -1;
      }
      if (now > 0 && seq < 0) {
        seq = h.next++;
        byNumber.put(numbers.encode(seq), RowFactory.create((Object) item.key.bytes()));
      }
      if (now == 0) {
        byValue.remove(item.key);
      } else {
        byValue.put(item.key, RowFactory.create(now, seq));
      }
    }

    @Override
    public void clear() {
      byValue.clear();
      byNumber.clear();
    }
  }

  private static long count(OrderedMap map, Key key, long change) {
    Row row = map.get(key);
    long now = change + (row == null ? 0 : row.getLong(0));
    set(map, key, now);
    return now;
  }

  private static void set(OrderedMap map, Key key, long now) {
    if (now == 0) {
      map.remove(key);
    } else {
      map.put(key, RowFactory.create(now));
    }
  }
}
