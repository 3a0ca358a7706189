package dev.penstock.kernel.state;

import java.lang.reflect.Field;
import java.util.function.IntPredicate;
import java.util.function.Predicate;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.StatefulProcessorHandleImpl;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.ValueState;

/**
 * The state variables of a shared job in one task. They are the same whatever the members keep, so that members can change and the layout of the state does not: a
 * few values and a few maps of bytes, which each member's variables take in the order in which it opens them.
 */
public final class SlotStates {
  static final int VALUES = 2;
  static final int MAPS = 6;

  final ValueState<byte[]>[] values;
  final MapState<byte[], byte[]>[] maps;
  final SlotSizes sizes;

  /** Removes the state of slots in a task. The store has no order by slot that could be relied on, so all of it is read. */
  public static void sweep(StatefulProcessorHandle handle, IntPredicate gone) {
    StateStore store = store(handle);
    if (store == null) {
      return;
    }
    for (int i = 0; i < VALUES; i++) {
      sweep(store, "value" + i, key -> gone.test(key.getInt(1)));
    }
    for (int i = 0; i < MAPS; i++) {
      // The key of an entry is the grouping key and that in the map.
      sweep(store, "map" + i, key -> gone.test(key.getStruct(0, 2).getInt(1)));
    }
  }

  private static void sweep(StateStore store, String variable, Predicate<UnsafeRow> gone) {
    StateStoreIterator<UnsafeRowPair> all = store.iterator(variable);
    try {
      while (all.hasNext()) {
        UnsafeRow key = all.next().key();
        if (gone.test(key)) {
          store.remove(key.copy(), variable);
        }
      }
    } finally {
      all.close();
    }
  }

  /** The store behind a handle, which does not show it; null on the driver, where there is none. */
  private static StateStore store(StatefulProcessorHandle handle) {
    if (!(handle instanceof StatefulProcessorHandleImpl)) {
      return null;
    }
    try {
      Field field = StatefulProcessorHandleImpl.class.getDeclaredField("store");
      field.setAccessible(true);
      return (StateStore) field.get(handle);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  @SuppressWarnings("unchecked")
  public SlotStates(StatefulProcessorHandle handle, SlotSizes sizes) {
    this.sizes = sizes;
    values = new ValueState[VALUES];
    for (int i = 0; i < VALUES; i++) {
      values[i] = handle.getValueState("value" + i, KnownEncoder.of(Encoders.BINARY()), TTLConfig.NONE());
    }
    maps = new MapState[MAPS];
    for (int i = 0; i < MAPS; i++) {
      maps[i] = handle.getMapState(
          "map" + i, KnownEncoder.of(Encoders.BINARY()), KnownEncoder.of(Encoders.BINARY()), TTLConfig.NONE());
    }
  }
}
