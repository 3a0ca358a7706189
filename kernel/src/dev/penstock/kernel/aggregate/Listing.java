package dev.penstock.kernel.aggregate;

import dev.penstock.kernel.state.OrderKey;
import dev.penstock.kernel.state.OrderKey.Key;
import dev.penstock.kernel.state.StateBytes;
import java.io.ByteArrayOutputStream;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;

/**
 * The rows of a group in order of arrival: ARRAY_AGG, STRING_AGG, and FIRST/LAST if rows may be retracted.
 *
 * <p>A retraction removes the youngest of equal rows (for LAST the oldest, so that both ends remain as long as possible). A retraction that
 * arrives before its row (in the changes of one epoch) waits for it. With an order, rows are sorted by it, then by arrival.
 * State: every row.
 */
final class Listing implements Accumulator {
  /** One row, or several equal ones that arrived together; a negative count waits for its row. */
  static final class Item {
    final Key key;
    long count;

    Item(Key key, long count) {
      this.key = key;
      this.count = count;
    }
  }

  private final OrderKey codec;
  private final OrderKey order;
  private final int[] orderAt;
  private final int[] skipNull;
  private final int separatorAt;
  private final boolean distinct;
  private final boolean takeOldest;
  private final Function<Listing, Object> finish;
  private final List<Item> items = new ArrayList<>();
  private Map<Key, List<Item>> index;

  /**
   * @param codec key over all arguments
   * @param order key over the arguments at {@code orderAt}, or null for arrival
   * @param separatorAt the argument that separates joined values, or -1
   * @param distinct of rows with the same first argument, only the first counts
   * @param takeOldest whether a retraction removes the oldest of equal rows
   */
  Listing(
      OrderKey codec,
      OrderKey order,
      int[] orderAt,
      int[] skipNull,
      int separatorAt,
      boolean distinct,
      boolean takeOldest,
      Function<Listing, Object> finish) {
    this.codec = codec;
    this.order = order;
    this.orderAt = orderAt;
    this.skipNull = skipNull;
    this.separatorAt = separatorAt;
    this.distinct = distinct;
    this.takeOldest = takeOldest;
    this.finish = finish;
  }

  @Override
  public void add(Object[] args, long weight) {
    for (int i : skipNull) {
      if (args[i] == null) {
        return;
      }
    }
    append(codec.encode(args), weight);
  }

  private void append(Key key, long weight) {
    if (weight > 0 && index == null) {
      items.add(new Item(key, weight));
      return;
    }
    if (index == null) {
      index = new HashMap<>();
      for (Item item : items) {
        index.computeIfAbsent(item.key, k -> new ArrayList<>()).add(item);
      }
    }
    List<Item> same = index.computeIfAbsent(key, k -> new ArrayList<>());
    long left = weight;
    int step = takeOldest ? 1 : -1;
    for (int i = takeOldest ? 0 : same.size() - 1; i >= 0 && i < same.size() && left != 0; i += step) {
      Item item = same.get(i);
      if (item.count != 0 && item.count > 0 != left > 0) {
        long taken = Math.min(Math.abs(item.count), Math.abs(left));
        item.count += left > 0 ? taken : -taken;
        left -= left > 0 ? taken : -taken;
      }
    }
    same.removeIf(item -> item.count == 0);
    if (left != 0) {
      Item item = new Item(key, left);
      items.add(item);
      same.add(item);
    }
  }

  @Override
  public void merge(Accumulator other) {
    Listing o = (Listing) other;
    for (Item item : o.items) {
      if (item.count != 0) {
        append(item.key, item.count);
      }
    }
  }

  @Override
  public void write(StateBytes.Out out) {
    out.varint(items.stream().filter(i -> i.count != 0).count());
    for (Item item : items) {
      if (item.count != 0) {
        out.blob(item.key.bytes());
        out.varint(item.count);
      }
    }
  }

  @Override
  public void read(StateBytes.In in) {
    items.clear();
    index = null;
    boolean waiting = false;
    for (long left = in.varint(); left > 0; left--) {
      Key key = codec.encode(codec.decode(in.blob()));
      Item item = new Item(key, in.varint());
      waiting |= item.count < 0;
      items.add(item);
    }
    if (waiting) {
      append(items.get(0).key, 0);
    }
  }

  @Override
  public int size() {
    return items.size();
  }

  @Override
  public Object result() {
    return finish.apply(this);
  }

  List<Item> items() {
    return items;
  }

  Object[] decode(Key key) {
    return codec.decode(key);
  }

  private List<Object[]> rows() {
    List<Object[]> out = new ArrayList<>();
    Set<Object> seen = new HashSet<>();
    for (Item item : items) {
      if (item.count > 0) {
        Object[] row = codec.decode(item.key);
        long times = distinct ? 1 : item.count;
        for (long i = 0; i < times; i++) {
          out.add(row);
        }
      }
    }
    if (order != null) {
      out.sort(Comparator.comparing(this::orderOf));
    }
    if (distinct) {
      out.removeIf(row -> !seen.add(row[0] instanceof byte[] b ? java.nio.ByteBuffer.wrap(b) : row[0]));
    }
    return out;
  }

  private Key orderOf(Object[] row) {
    Object[] values = new Object[orderAt.length];
    for (int i = 0; i < values.length; i++) {
      values[i] = row[orderAt[i]];
    }
    return order.encode(values);
  }

  /** All values; an empty array if there are none. */
  Object array() {
    List<Object> out = new ArrayList<>();
    rows().forEach(row -> out.add(row[0]));
    return scala.jdk.javaapi.CollectionConverters.asScala(out).toSeq();
  }

  /** The values with the separator (none or NULL: nothing) between them; NULL if there are none. */
  Object joined() {
    List<Object[]> rows = rows();
    if (rows.isEmpty()) {
      return null;
    }
    Object separator = separatorAt < 0 ? null : rows.get(0)[separatorAt];
    if (rows.get(0)[0] instanceof byte[]) {
      ByteArrayOutputStream out = new ByteArrayOutputStream();
      for (int i = 0; i < rows.size(); i++) {
        if (i > 0 && separator != null) {
          out.writeBytes((byte[]) separator);
        }
        out.writeBytes((byte[]) rows.get(i)[0]);
      }
      return out.toByteArray();
    }
    StringBuilder out = new StringBuilder();
    for (int i = 0; i < rows.size(); i++) {
      out.append(i > 0 && separator != null ? separator : "").append(rows.get(i)[0]);
    }
    return out.toString();
  }

  /** The first value by arrival. */
  Object first() {
    for (Item item : items) {
      if (item.count > 0) {
        return codec.decode(item.key)[0];
      }
    }
    return null;
  }

  /** The last value by arrival. */
  Object last() {
    for (int i = items.size() - 1; i >= 0; i--) {
      if (items.get(i).count > 0) {
        return codec.decode(items.get(i).key)[0];
      }
    }
    return null;
  }
}
