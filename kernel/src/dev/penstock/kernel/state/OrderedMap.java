package dev.penstock.kernel.state;

import dev.penstock.kernel.state.OrderKey.Key;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.types.StructType;
import scala.Tuple2;

/**
 * A map in the state of the current grouping key that iterates in key order.
 *
 * <p>Requires a handle whose maps are ordered by their keys' bytes, such as {@link RawHandle}. {@link #get}, {@link #put} and
 * {@link #remove} cost one point access, {@link #first} one seek, however many entries there are. An iterator sees the map as it was when it was
 * opened. There is no seek to the middle.
 */
public final class OrderedMap implements Serializable {
  private static final long serialVersionUID = 1L;

  /** A key and its value (a Row of the map's value schema). */
  public record Entry(Key key, Row value) {}

  /** Entries in order. Close it unless you read it to the end; otherwise it holds RocksDB resources until the task ends. */
  public interface Entries extends Iterator<Entry>, AutoCloseable {
    @Override
    void close();
  }

  private final MapState<byte[], Row> state;

  private OrderedMap(MapState<byte[], Row> state) {
    this.state = state;
  }

  /** Opens the map called {@code name}. Call it in a processor's {@code init}. */
  public static OrderedMap open(StatefulProcessorHandle handle, String name, StructType value) {
    return new OrderedMap(handle.getMapState(name, Encoders.BINARY(), Encoders.row(value), TTLConfig.NONE()));
  }

  /** The value of a key, or null. */
  public Row get(Key key) {
    return state.getValue(key.bytes());
  }

  /** Sets the value of a key. */
  public void put(Key key, Row value) {
    state.updateValue(key.bytes(), value);
  }

  /** Removes a key, if it exists. */
  public void remove(Key key) {
    state.removeKey(key.bytes());
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

  /** All entries, from the smallest key. */
  public Entries iterate() {
    scala.collection.Iterator<Tuple2<byte[], Row>> source = state.iterator();
    return new Entries() {
      @Override
      public boolean hasNext() {
        return source.hasNext();
      }

      @Override
      public Entry next() {
        Tuple2<byte[], Row> pair = source.next();
        return new Entry(new Key(pair._1()), pair._2());
      }

      @Override
      public void close() {
        OrderedMap.close(source);
      }
    };
  }

  /** Closes an iterator of a map. Otherwise a job with many groups holds one RocksDB iterator per group until the task ends. */
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
