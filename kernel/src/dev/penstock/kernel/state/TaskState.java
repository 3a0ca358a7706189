package dev.penstock.kernel.state;

import java.lang.reflect.Field;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.StatefulProcessorHandleImpl;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.unsafe.Platform;

/**
 * The state of a task: a map from bytes to bytes, ordered by the keys' bytes.
 *
 * <p>Spark's state variables generate code to encode keys and values, for every variable of every task of every epoch. That takes several times as
 * long as processing the rows of a small epoch. Here the caller encodes, and the column family has an encoder that adds nothing ({@link RawKeys}).
 */
final class TaskState {
  private static final String NAME = "state";

  private final StateStore store;
  private final String family;
  /** Whether timers have been added or removed. */
  boolean timersChanged;

  /** @param family a column family of the store whose encoder is {@link RawKeys} */
  TaskState(StateStore store, String family) {
    this.store = store;
    this.family = family;
  }

  /** The state behind a handle. Call it in a processor's {@code init}. On the driver, where Spark only asks for the layout, the result is unusable. */
  static TaskState of(StatefulProcessorHandle handle) {
    if (!(handle instanceof StatefulProcessorHandleImpl)) {
      handle.getValueState(NAME, Encoders.BINARY(), TTLConfig.NONE());
      return new TaskState(null, NAME);
    }
    StateStore store = store(handle);
    store.createColFamilyIfAbsent(NAME, RawKeys.SCHEMA, RawKeys.SCHEMA, RawKeys.INSTANCE, false, false);
    return new TaskState(store, NAME);
  }

  /** The store behind a handle, which does not expose it. */
  private static StateStore store(StatefulProcessorHandle handle) {
    try {
      Field field = StatefulProcessorHandleImpl.class.getDeclaredField("store");
      field.setAccessible(true);
      return (StateStore) field.get(handle);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** The value of a key, or null. */
  byte[] get(byte[] key) {
    UnsafeRow value = store.get(row(key), family);
    return value == null ? null : value.getBinary(0);
  }

  void put(byte[] key, byte[] value) {
    store.put(row(key), row(value), family);
  }

  void remove(byte[] key) {
    store.remove(row(key), family);
  }

  /** A snapshot of the entries whose keys begin with a prefix. */
  Entries scan(byte[] prefix) {
    return new Entries(store.prefixScan(row(prefix), family));
  }

  /** Entries in order. Close it unless you read it to the end; otherwise it holds resources of the store until the task ends. */
  static final class Entries implements AutoCloseable {
    private final StateStoreIterator<UnsafeRowPair> source;
    private byte[] key;
    private byte[] value;

    private Entries(StateStoreIterator<UnsafeRowPair> source) {
      this.source = source;
    }

    boolean hasNext() {
      return source.hasNext();
    }

    /** Advances to the next entry. */
    void next() {
      UnsafeRowPair pair = source.next();
      key = pair.key().getBinary(0);
      value = pair.value().getBinary(0);
    }

    byte[] key() {
      return key;
    }

    byte[] value() {
      return value;
    }

    @Override
    public void close() {
      source.close();
    }
  }

  /** Bytes as the only column of a row. */
  static UnsafeRow row(byte[] bytes) {
    int head = 2 * Long.BYTES;
    byte[] all = new byte[head + (bytes.length + Long.BYTES - 1) / Long.BYTES * Long.BYTES];
    Platform.putLong(all, Platform.BYTE_ARRAY_OFFSET + Long.BYTES, (long) head << 32 | bytes.length);
    System.arraycopy(bytes, 0, all, head, bytes.length);
    UnsafeRow row = new UnsafeRow(1);
    row.pointTo(all, all.length);
    return row;
  }
}
