package dev.penstock.kernel.state;

import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.ValueState;
import scala.Tuple2;
import scala.collection.AbstractIterator;

/** A processor's handle whose state variables report all insertions and removals to a {@link StateSize}. */
public final class CountedHandle extends Handle {
  private static final long serialVersionUID = 1L;
  /** The number of cached sizes per grouping key; other sizes are read again. */
  private static final int REMEMBERED = 1 << 16;

  private final StatefulProcessorHandle inner;
  private final StateSize size;
  private final boolean entriesAreRows;
  private final long shift;

  /**
   * @param entriesAreRows whether each value counts as one row of the operator
   * @param shift the offset of timers, see {@link EventTime}
   */
  CountedHandle(StatefulProcessorHandle inner, StateSize size, boolean entriesAreRows, long shift) {
    this.inner = inner;
    this.size = size;
    this.entriesAreRows = entriesAreRows;
    this.shift = shift;
  }

  /** The time to register a timer for before there is a watermark. */
  public static long earliest(StatefulProcessorHandle handle) {
    return handle instanceof CountedHandle counted ? 1 - counted.shift : 1;
  }

  /** The same handle for state whose entries hold several rows, which their owner counts with {@link #rows}. */
  public static StatefulProcessorHandle packed(StatefulProcessorHandle handle) {
    return handle instanceof CountedHandle counted ? new CountedHandle(counted.inner, counted.size, false, counted.shift) : handle;
  }

  public static void rows(StatefulProcessorHandle handle, long more) {
    if (handle instanceof CountedHandle counted) {
      counted.size.add(more, 0);
    }
  }

  private void changed(long entries, long bytes) {
    size.add(entriesAreRows ? entries : 0, bytes);
  }

  @Override
  public <T> ValueState<T> getValueState(String name, Encoder<T> encoder, TTLConfig ttl) {
    return new Value<>(inner.getValueState(name, encoder, ttl));
  }

  @Override
  public <K, V> MapState<K, V> getMapState(String name, Encoder<K> keys, Encoder<V> values, TTLConfig ttl) {
    return new Mapped<>(inner.getMapState(name, keys, values, ttl));
  }

  @Override
  public void registerTimer(long time) {
    inner.registerTimer(time + shift);
  }

  @Override
  public void deleteTimer(long time) {
    inner.deleteTimer(time + shift);
  }

  @Override
  public scala.collection.Iterator<Object> listTimers() {
    throw new UnsupportedOperationException("timers are not listed");
  }

  private final class Value<T> implements ValueState<T> {
    private static final long serialVersionUID = 1L;
    private static final int NOTHING = -1;
    private final ValueState<T> state;
    private long turn = -1;
    private int bytes;

    Value(ValueState<T> state) {
      this.state = state;
    }

    private void know(int now) {
      turn = size.turn();
      bytes = now;
    }

    private int known() {
      if (turn != size.turn()) {
        get();
      }
      return bytes;
    }

    @Override
    public boolean exists() {
      return known() != NOTHING;
    }

    @Override
    public T get() {
      T value = state.get();
      know(value == null ? NOTHING : StateSize.bytes(value));
      return value;
    }

    @Override
    public void update(T value) {
      int before = known();
      state.update(value);
      know(StateSize.bytes(value));
      changed(before == NOTHING ? 1 : 0, before == NOTHING ? size.keyBytes() + bytes : bytes - before);
    }

    @Override
    public void clear() {
      int before = known();
      if (before != NOTHING) {
        state.clear();
        know(NOTHING);
        changed(-1, -size.keyBytes() - before);
      }
    }
  }

  private final class Mapped<K, V> implements MapState<K, V> {
    private static final long serialVersionUID = 1L;
    private final MapState<K, V> state;
    /** Sizes of the entries of the current grouping key that were read or written; null: no such entry. */
    private final Map<Object, Integer> sizes = new HashMap<>();
    private long turn = -1;

    Mapped(MapState<K, V> state) {
      this.state = state;
    }

    private void know(K key, Integer bytes) {
      if (turn != size.turn()) {
        sizes.clear();
        turn = size.turn();
      }
      if (sizes.size() < REMEMBERED) {
        sizes.put(named(key), bytes);
      } else {
        sizes.replace(named(key), bytes);
      }
    }

    private Object named(K key) {
      return key instanceof byte[] bytes ? ByteBuffer.wrap(bytes) : key;
    }

    private Integer known(K key) {
      Object name = named(key);
      if (turn == size.turn() && sizes.containsKey(name)) {
        return sizes.get(name);
      }
      V value = getValue(key);
      return value == null ? null : (Integer) StateSize.bytes(value);
    }

    @Override
    public boolean exists() {
      return state.exists();
    }

    @Override
    public V getValue(K key) {
      V value = state.getValue(key);
      know(key, value == null ? null : (Integer) StateSize.bytes(value));
      return value;
    }

    @Override
    public boolean containsKey(K key) {
      return state.containsKey(key);
    }

    @Override
    public void updateValue(K key, V value) {
      Integer before = known(key);
      int now = StateSize.bytes(value);
      state.updateValue(key, value);
      know(key, now);
      changed(before == null ? 1 : 0, before == null ? own(key) + now : now - before);
    }

    @Override
    public void removeKey(K key) {
      Integer before = known(key);
      if (before != null) {
        state.removeKey(key);
        know(key, null);
        changed(-1, -own(key) - before);
      }
    }

    private long own(K key) {
      return size.keyBytes() + StateSize.bytes(key);
    }

    @Override
    public void clear() {
      scala.collection.Iterator<Tuple2<K, V>> all = state.iterator();
      long entries = 0;
      long bytes = 0;
      while (all.hasNext()) {
        Tuple2<K, V> entry = all.next();
        entries++;
        bytes += own(entry._1()) + StateSize.bytes(entry._2());
      }
      if (entries > 0) {
        state.clear();
        sizes.clear();
        changed(-entries, -bytes);
      }
    }

    @Override
    public scala.collection.Iterator<Tuple2<K, V>> iterator() {
      return new Entries(state.iterator());
    }

    @Override
    public scala.collection.Iterator<K> keys() {
      return state.keys();
    }

    @Override
    public scala.collection.Iterator<V> values() {
      return state.values();
    }

    private final class Entries extends AbstractIterator<Tuple2<K, V>> implements AutoCloseable {
      private final scala.collection.Iterator<Tuple2<K, V>> source;

      Entries(scala.collection.Iterator<Tuple2<K, V>> source) {
        this.source = source;
      }

      @Override
      public boolean hasNext() {
        return source.hasNext();
      }

      @Override
      public Tuple2<K, V> next() {
        Tuple2<K, V> entry = source.next();
        know(entry._1(), StateSize.bytes(entry._2()));
        return entry;
      }

      @Override
      public void close() {
        OrderedMap.close(source);
      }
    }
  }
}
