package dev.penstock.kernel.state;

import dev.penstock.kernel.row.RowCodec;
import java.nio.ByteBuffer;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.ListState;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.QueryInfo;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.ValueState;
import scala.Tuple2;
import scala.collection.AbstractIterator;

/**
 * The handle of a member of a shared job. Its variables lie in those of the job's {@link SlotStates}; the member opens them once, and works on the state
 * of one task after the other.
 */
public final class SlotHandle implements StatefulProcessorHandle {
  private static final long serialVersionUID = 1L;

  /** A value as bytes. */
  private interface Codec<T> {
    byte[] bytes(T value);

    T value(byte[] bytes);
  }

  private transient SlotStates states;
  private int slot;
  private int values;
  private int maps;
  private final StateSize size = new StateSize(0, (rows, bytes) -> states.sizes.add(slot, rows, bytes));

  /** The same handle, whose changes are counted. */
  public StatefulProcessorHandle counted() {
    return new CountedHandle(this, size, true, 0);
  }

  public void enter(int newSlot, SlotStates newStates) {
    slot = newSlot;
    states = newStates;
  }

  public void leave() {
    states = null;
  }

  /** From here on a group is worked on. */
  public void at(Object key) {
    size.at(key);
  }

  /** The number of a variable, if the state of a shared job has room for it. */
  private static int place(int wanted, int there, String what) {
    if (wanted >= there) {
      throw new UnsupportedOperationException("it keeps more than " + there + " " + what + " in its state");
    }
    return wanted;
  }

  @Override
  public <T> ValueState<T> getValueState(String name, Encoder<T> encoder, TTLConfig ttl) {
    return new Value<>(place(values++, SlotStates.VALUES, "values"), codec(encoder));
  }

  @Override
  public <T> ValueState<T> getValueState(String name, TTLConfig ttl, Encoder<T> encoder) {
    return getValueState(name, encoder, ttl);
  }

  @Override
  public <K, V> MapState<K, V> getMapState(String name, Encoder<K> keys, Encoder<V> entries, TTLConfig ttl) {
    return new Mapped<>(place(maps++, SlotStates.MAPS, "maps"), codec(keys), codec(entries));
  }

  @Override
  public <K, V> MapState<K, V> getMapState(String name, TTLConfig ttl, Encoder<K> keys, Encoder<V> entries) {
    return getMapState(name, keys, entries, ttl);
  }

  @SuppressWarnings("unchecked")
  private static <T> Codec<T> codec(Encoder<T> encoder) {
    Class<?> type = encoder.clsTag().runtimeClass();
    if (type == byte[].class) {
      return (Codec<T>) new Plain();
    }
    if (type == Long.class || type == long.class) {
      return (Codec<T>) new Number();
    }
    if (type == Boolean.class || type == boolean.class) {
      return (Codec<T>) new Flag();
    }
    if (Row.class.isAssignableFrom(type)) {
      return (Codec<T>) new Rows(new RowCodec(encoder.schema()));
    }
    throw new UnsupportedOperationException("it keeps " + type.getSimpleName() + " in its state");
  }

  private record Plain() implements Codec<byte[]> {
    @Override
    public byte[] bytes(byte[] value) {
      return value;
    }

    @Override
    public byte[] value(byte[] bytes) {
      return bytes;
    }
  }

  private record Number() implements Codec<Long> {
    @Override
    public byte[] bytes(Long value) {
      return ByteBuffer.allocate(Long.BYTES).putLong(value).array();
    }

    @Override
    public Long value(byte[] bytes) {
      return ByteBuffer.wrap(bytes).getLong();
    }
  }

  private record Flag() implements Codec<Boolean> {
    @Override
    public byte[] bytes(Boolean value) {
      return new byte[] {(byte) (value ? 1 : 0)};
    }

    @Override
    public Boolean value(byte[] bytes) {
      return bytes[0] != 0;
    }
  }

  private record Rows(RowCodec codec) implements Codec<Row> {
    @Override
    public byte[] bytes(Row value) {
      return codec.bytes(value);
    }

    @Override
    public Row value(byte[] bytes) {
      return codec.row(bytes);
    }
  }

  @Override
  public <T> ListState<T> getListState(String name, Encoder<T> encoder, TTLConfig ttl) {
    throw new UnsupportedOperationException("a member of a shared job has no lists");
  }

  @Override
  public <T> ListState<T> getListState(String name, TTLConfig ttl, Encoder<T> encoder) {
    return getListState(name, encoder, ttl);
  }

  @Override
  public QueryInfo getQueryInfo() {
    throw new UnsupportedOperationException("no query is known here");
  }

  @Override
  public void registerTimer(long time) {
    throw new UnsupportedOperationException("a member of a shared job has no timers");
  }

  @Override
  public void deleteTimer(long time) {
    registerTimer(time);
  }

  @Override
  public scala.collection.Iterator<Object> listTimers() {
    return scala.collection.Iterator$.MODULE$.empty();
  }

  @Override
  public void deleteIfExists(String name) {}

  private final class Value<T> implements ValueState<T> {
    private static final long serialVersionUID = 1L;
    private final int at;
    private final transient Codec<T> codec;

    Value(int at, Codec<T> codec) {
      this.at = at;
      this.codec = codec;
    }

    private ValueState<byte[]> state() {
      return states.values[at];
    }

    @Override
    public boolean exists() {
      return state().exists();
    }

    @Override
    public T get() {
      byte[] bytes = state().get();
      return bytes == null ? null : codec.value(bytes);
    }

    @Override
    public void update(T value) {
      state().update(codec.bytes(value));
    }

    @Override
    public void clear() {
      state().clear();
    }
  }

  private final class Mapped<K, V> implements MapState<K, V> {
    private static final long serialVersionUID = 1L;
    private final int at;
    private final transient Codec<K> keys;
    private final transient Codec<V> entries;

    Mapped(int at, Codec<K> keys, Codec<V> entries) {
      this.at = at;
      this.keys = keys;
      this.entries = entries;
    }

    private MapState<byte[], byte[]> state() {
      return states.maps[at];
    }

    @Override
    public boolean exists() {
      return state().exists();
    }

    @Override
    public V getValue(K key) {
      byte[] bytes = state().getValue(keys.bytes(key));
      return bytes == null ? null : entries.value(bytes);
    }

    @Override
    public boolean containsKey(K key) {
      return state().containsKey(keys.bytes(key));
    }

    @Override
    public void updateValue(K key, V value) {
      state().updateValue(keys.bytes(key), entries.bytes(value));
    }

    @Override
    public scala.collection.Iterator<Tuple2<K, V>> iterator() {
      return new Entries(state().iterator());
    }

    @Override
    public scala.collection.Iterator<K> keys() {
      scala.collection.Iterator<byte[]> all = state().keys();
      return new AbstractIterator<>() {
        @Override
        public boolean hasNext() {
          return all.hasNext();
        }

        @Override
        public K next() {
          return keys.value(all.next());
        }
      };
    }

    @Override
    public scala.collection.Iterator<V> values() {
      scala.collection.Iterator<byte[]> all = state().values();
      return new AbstractIterator<>() {
        @Override
        public boolean hasNext() {
          return all.hasNext();
        }

        @Override
        public V next() {
          return entries.value(all.next());
        }
      };
    }

    @Override
    public void removeKey(K key) {
      state().removeKey(keys.bytes(key));
    }

    @Override
    public void clear() {
      state().clear();
    }

    private final class Entries extends AbstractIterator<Tuple2<K, V>> implements AutoCloseable {
      private final scala.collection.Iterator<Tuple2<byte[], byte[]>> source;

      Entries(scala.collection.Iterator<Tuple2<byte[], byte[]>> source) {
        this.source = source;
      }

      @Override
      public boolean hasNext() {
        return source.hasNext();
      }

      @Override
      public Tuple2<K, V> next() {
        Tuple2<byte[], byte[]> entry = source.next();
        return new Tuple2<>(keys.value(entry._1()), entries.value(entry._2()));
      }

      @Override
      public void close() {
        OrderedMap.close(source);
      }
    }
  }
}
