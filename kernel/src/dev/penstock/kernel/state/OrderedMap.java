package dev.penstock.kernel.state;

import dev.penstock.kernel.state.OrderKey.Key;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.Tuple2;

/**
 * A map in the state of the current grouping key whose entries are read in the order of their keys.
 *
 * <p>Requires a handle whose maps are in the order of their keys' bytes, as those of {@link RawHandle} are. {@link #get}, {@link #put} and {@link #remove} cost one point access, {@link #first} one
 * seek, however many entries there are; entries whose strings agree in the first {@value OrderKey#PREFIX} bytes are read
 * together. An iterator sees the map as it was when it was opened. There is no seek to the middle.
 */
public final class OrderedMap implements Serializable {
  private static final long serialVersionUID = 1L;

  /** A key and its value (a Row of the map's value schema). */
  public record Entry(Key key, Row value) {}

  /** Entries in order. Close it if it is not read to the end; otherwise it holds RocksDB resources until the task ends. */
  public interface Entries extends Iterator<Entry>, AutoCloseable {
    @Override
    void close();
  }

  private final OrderKey order;
  private final MapState<byte[], Row> state;
  private final int width;

  private OrderedMap(OrderKey order, MapState<byte[], Row> state, int width) {
    this.order = order;
    this.state = state;
    this.width = width;
  }

  /** Opens the map called {@code name}; to be called in a processor's {@code init}. */
  public static OrderedMap open(StatefulProcessorHandle handle, String name, OrderKey order, StructType value) {
    StructType kept = order.exact() ? value : value.add("__key", DataTypes.BinaryType, true);
    return new OrderedMap(
        order, handle.getMapState(name, Encoders.BINARY(), Encoders.row(kept), TTLConfig.NONE()), value.size());
  }

  /** The value of a key, or null. */
  public Row get(Key key) {
    Row kept = state.getValue(key.stored);
    return kept == null ? null : value(kept);
  }

  /** Sets the value of a key. */
  public void put(Key key, Row value) {
    if (order.exact()) {
      state.updateValue(key.stored, value);
      return;
    }
    Object[] kept = new Object[width + 1];
    for (int i = 0; i < width; i++) {
      kept[i] = value.get(i);
    }
    kept[width] = key.cut ? key.full : null;
    state.updateValue(key.stored, RowFactory.create(kept));
  }

  /** Removes a key, if it exists. */
  public void remove(Key key) {
    state.removeKey(key.stored);
  }

  /** Removes everything. */
  public void clear() {
    state.clear();
  }

  /** The entry with the smallest key, or null if the map is empty. */
  public Entry first() {
    try (Entries all = iterate()) {
      return all.hasNext() ? all.next() : null;
    }
  }

  /** The entries with the {@code n} smallest keys, in order. */
  public List<Entry> firstN(long n) {
    List<Entry> out = new ArrayList<>();
    try (Entries all = iterate()) {
      while (out.size() < n && all.hasNext()) {
        out.add(all.next());
      }
    }
    return out;
  }

  /** All entries from the smallest key on. */
  public Entries iterate() {
    return new Scan(state.iterator());
  }

  private Row value(Row kept) {
    if (order.exact()) {
      return kept;
    }
    Object[] values = new Object[width];
    for (int i = 0; i < width; i++) {
      values[i] = kept.get(i);
    }
    return RowFactory.create(values);
  }

  private final class Scan implements Entries {
    private final scala.collection.Iterator<Tuple2<byte[], Row>> source;
    private Entry ahead; // read from the source, neither returned nor in the run yet
    private Iterator<Entry> run = Collections.emptyIterator();

    Scan(scala.collection.Iterator<Tuple2<byte[], Row>> source) {
      this.source = source;
    }

    @Override
    public boolean hasNext() {
      return run.hasNext() || ahead != null || source.hasNext();
    }

    @Override
    public Entry next() {
      if (run.hasNext()) {
        return run.next();
      }
      Entry entry = pull();
      if (entry == null) {
        throw new NoSuchElementException();
      }
      int shared = order.undecided(entry.key());
      if (shared < 0) {
        return entry;
      }
      List<Entry> same = new ArrayList<>();
      same.add(entry);
      for (Entry e = pull(); e != null; e = pull()) {
        if (!Arrays.equals(e.key().stored, 0, shared, entry.key().stored, 0, shared)) {
          ahead = e;
          break;
        }
        same.add(e);
      }
      same.sort(Comparator.comparing(Entry::key));
      run = same.iterator();
      return run.next();
    }

    private Entry pull() {
      if (ahead != null) {
        Entry e = ahead;
        ahead = null;
        return e;
      }
      if (!source.hasNext()) {
        return null;
      }
      Tuple2<byte[], Row> pair = source.next();
      byte[] full = order.exact() ? null : (byte[]) pair._2().get(width);
      return new Entry(order.restore(pair._1(), full), value(pair._2()));
    }

    @Override
    public void close() {
      OrderedMap.close(source);
    }
  }

  /** Closes an iterator of a map: a job with many groups would otherwise hold one RocksDB iterator for each of them until the end of the task. */
  static void close(Object iterator) {
    if (iterator instanceof AutoCloseable closeable) {
      try {
        closeable.close();
      } catch (Exception e) {
        throw new IllegalStateException(e);
      }
    }
  }
}
