package dev.penstock.kernel.state;

import dev.penstock.kernel.row.RowCodec;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.function.BiFunction;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.ValueState;
import scala.Tuple2;
import scala.collection.AbstractIterator;

/**
 * A processor's handle whose variables are stored in a {@link TaskState}, numbered in the order in which the processor opens them. The processor opens them
 * once, and may then work on one task's state after another. The key of an entry is the member's slot in a shared job, the operator, the grouping key, the number
 * of the variable and, in a map, the map key. So neither processors nor their variables change the layout of the state.
 */
final class RawHandle extends Handle {
  private static final long serialVersionUID = 1L;
  private static final byte[] NOTHING = {};

  /** A value as bytes. */
  private interface Codec<T> {
    byte[] bytes(T value);

    T value(byte[] bytes);
  }

  /** Holds the timers; null: they are in the state, see {@link SlotTimers}. */
  private final transient StatefulProcessorHandle timers;
  private transient TaskState state;
  private transient byte[] group;
  private int variables;

  RawHandle(StatefulProcessorHandle timers) {
    this.timers = timers;
  }

  /** Switches to this state; null: to none. */
  void enter(TaskState newState) {
    state = newState;
    group = null;
  }

  /** Switches to a group. The length of the key separates groups of which one key is a prefix of another. */
  void at(int slot, int operator, byte[] key) {
    group = ByteBuffer.allocate(3 * Integer.BYTES + key.length)
        .putInt(slot).putInt(operator).putInt(key.length).put(key).array();
  }

  /** The number of the next variable. */
  private char next() {
    if (variables > Character.MAX_VALUE) {
      throw new UnsupportedOperationException("it keeps more than " + variables + " variables in its state");
    }
    return (char) variables++;
  }

  /** The offset of the map key in the key of an entry. */
  private int head() {
    return group.length + Character.BYTES;
  }

  /** The key of an entry of the current group in the store; {@code own}: the map key, empty for a value. */
  private byte[] key(char variable, byte[] own) {
    return ByteBuffer.allocate(head() + own.length).put(group).putChar(variable).put(own).array();
  }

  @Override
  public <T> ValueState<T> getValueState(String name, Encoder<T> encoder, TTLConfig ttl) {
    return new Value<>(next(), codec(encoder));
  }

  @Override
  public <K, V> MapState<K, V> getMapState(String name, Encoder<K> keys, Encoder<V> entries, TTLConfig ttl) {
    return new Mapped<>(next(), codec(keys), codec(entries));
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
  public void registerTimer(long time) {
    if (timers != null) {
      timers.registerTimer(time);
    } else {
      SlotTimers.register(state, time, group);
    }
  }

  @Override
  public void deleteTimer(long time) {
    if (timers != null) {
      timers.deleteTimer(time);
    } else {
      SlotTimers.delete(state, time, group);
    }
  }

  @Override
  public scala.collection.Iterator<Object> listTimers() {
    throw new UnsupportedOperationException("timers are not listed");
  }

  private final class Value<T> implements ValueState<T> {
    private static final long serialVersionUID = 1L;
    private final char variable;
    private final transient Codec<T> codec;

    Value(char variable, Codec<T> codec) {
      this.variable = variable;
      this.codec = codec;
    }

    private byte[] key() {
      return RawHandle.this.key(variable, NOTHING);
    }

    @Override
    public boolean exists() {
      return state.get(key()) != null;
    }

    @Override
    public T get() {
      byte[] bytes = state.get(key());
      return bytes == null ? null : codec.value(bytes);
    }

    @Override
    public void update(T value) {
      state.put(key(), codec.bytes(value));
    }

    @Override
    public void clear() {
      state.remove(key());
    }
  }

  private final class Mapped<K, V> implements MapState<K, V> {
    private static final long serialVersionUID = 1L;
    private final char variable;
    private final transient Codec<K> keys;
    private final transient Codec<V> entries;

    Mapped(char variable, Codec<K> keys, Codec<V> entries) {
      this.variable = variable;
      this.keys = keys;
      this.entries = entries;
    }

    private byte[] key(K own) {
      return RawHandle.this.key(variable, keys.bytes(own));
    }

    private TaskState.Entries all() {
      return state.scan(RawHandle.this.key(variable, NOTHING));
    }

    @Override
    public boolean exists() {
      try (TaskState.Entries all = all()) {
        return all.hasNext();
      }
    }

    @Override
    public V getValue(K key) {
      byte[] bytes = state.get(key(key));
      return bytes == null ? null : entries.value(bytes);
    }

    @Override
    public boolean containsKey(K key) {
      return state.get(key(key)) != null;
    }

    @Override
    public void updateValue(K key, V value) {
      state.put(key(key), entries.bytes(value));
    }

    @Override
    public scala.collection.Iterator<Tuple2<K, V>> iterator() {
      return new Scan<>(all(), head(), (key, value) -> new Tuple2<>(keys.value(key), entries.value(value)));
    }

    @Override
    public scala.collection.Iterator<K> keys() {
      return new Scan<>(all(), head(), (key, value) -> keys.value(key));
    }

    @Override
    public scala.collection.Iterator<V> values() {
      return new Scan<>(all(), head(), (key, value) -> entries.value(value));
    }

    @Override
    public void removeKey(K key) {
      state.remove(key(key));
    }

    @Override
    public void clear() {
      try (TaskState.Entries all = all()) {
        while (all.hasNext()) {
          all.next();
          state.remove(all.key());
        }
      }
    }
  }

  /** Converts the entries of a map, whose map keys begin at {@code from}. */
  private static final class Scan<T> extends AbstractIterator<T> implements AutoCloseable {
    private final TaskState.Entries source;
    private final int from;
    private final BiFunction<byte[], byte[], T> make;

    Scan(TaskState.Entries source, int from, BiFunction<byte[], byte[], T> make) {
      this.source = source;
      this.from = from;
      this.make = make;
    }

    @Override
    public boolean hasNext() {
      return source.hasNext();
    }

    @Override
    public T next() {
      source.next();
      return make.apply(Arrays.copyOfRange(source.key(), from, source.key().length), source.value());
    }

    @Override
    public void close() {
      source.close();
    }
  }
}
