package dev.penstock.kernel.recursion;

import dev.penstock.kernel.row.PackedRow;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Function;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;

/** The rows of a recursion with their derivations, the same rows by join key, and the other collection by key. */
final class RecursionState {
  /** A row with its weights by depth, before the epoch and now. */
  static final class Derived {
    final byte[] row;
    final TreeMap<Integer, Long> before;
    final TreeMap<Integer, Long> weights;
    private byte[] key;
    private boolean keyed;

    private Derived(byte[] row, TreeMap<Integer, Long> before) {
      this.row = row;
      this.before = before;
      this.weights = new TreeMap<>(before);
    }

    void add(int depth, long weight) {
      weights.merge(depth, weight, (a, b) -> Math.addExact(a, b) == 0 ? null : Math.addExact(a, b));
    }

    byte[] key(Function<byte[], byte[]> of) {
      if (!keyed) {
        key = of.apply(row);
        keyed = true;
      }
      return key;
    }
  }

  private final MapState<byte[], byte[]> rows;
  private final MapState<byte[], byte[]> rowsByKey;
  private final MapState<byte[], byte[]> others;

  private final Map<PackedRow, Derived> known = new LinkedHashMap<>();
  private final Map<PackedRow, Map<PackedRow, long[]>> knownOthers = new LinkedHashMap<>();
  private final Set<PackedRow> changedOthers = new LinkedHashSet<>();

  /** Call it in a processor's {@code init}. */
  RecursionState(StatefulProcessorHandle handle) {
    rows = handle.getMapState("rows", Encoders.BINARY(), Encoders.BINARY(), TTLConfig.NONE());
    rowsByKey = handle.getMapState("rowsByKey", Encoders.BINARY(), Encoders.BINARY(), TTLConfig.NONE());
    others = handle.getMapState("others", Encoders.BINARY(), Encoders.BINARY(), TTLConfig.NONE());
  }

  /** Starts an epoch. */
  void open() {
    known.clear();
    knownOthers.clear();
    changedOthers.clear();
  }

  Derived row(byte[] row) {
    return known.computeIfAbsent(PackedRow.of(row, 0), k -> new Derived(row, weights(rows.getValue(row))));
  }

  /** Every row that was processed in this epoch. */
  Collection<Derived> changed() {
    return known.values();
  }

  /** The rows with this join key that existed before the epoch. */
  List<Derived> rowsOf(byte[] key) {
    List<Derived> list = new ArrayList<>();
    for (PackedRow row : entries(rowsByKey.getValue(key)).keySet()) {
      list.add(row(row.row()));
    }
    return list;
  }

  /** The rows of the other collection with this key, and their weights. */
  Map<PackedRow, long[]> othersOf(byte[] key) {
    return knownOthers.computeIfAbsent(PackedRow.of(key, 0), k -> entries(others.getValue(key)));
  }

  void changeOther(byte[] key, byte[] row, long weight) {
    add(othersOf(key), row, weight);
    changedOthers.add(PackedRow.of(key, 0));
  }

  /** Writes the changes; {@code keyOf} returns a row's join key, or null. */
  void flush(Function<byte[], byte[]> keyOf) {
    Map<PackedRow, Map<PackedRow, long[]>> keys = new LinkedHashMap<>();
    for (Derived derived : known.values()) {
      if (derived.weights.equals(derived.before)) {
        continue;
      }
      if (derived.weights.isEmpty()) {
        rows.removeKey(derived.row);
      } else {
        rows.updateValue(derived.row, bytes(derived.weights));
      }
      byte[] key = derived.weights.isEmpty() == derived.before.isEmpty() ? null : derived.key(keyOf);
      if (key != null) {
        add(keys.computeIfAbsent(PackedRow.of(key, 0), k -> entries(rowsByKey.getValue(key))), derived.row,
            derived.weights.isEmpty() ? -1 : 1);
      }
    }
    keys.forEach((key, list) -> write(rowsByKey, key.row(), list));
    changedOthers.forEach(key -> write(others, key.row(), knownOthers.get(key)));
    open();
  }

  private static void add(Map<PackedRow, long[]> entries, byte[] row, long weight) {
    PackedRow at = PackedRow.of(row, 0);
    long[] sum = entries.computeIfAbsent(at, k -> new long[1]);
    sum[0] += weight;
    if (sum[0] == 0) {
      entries.remove(at);
    }
  }

  private static void write(MapState<byte[], byte[]> map, byte[] key, Map<PackedRow, long[]> entries) {
    if (entries.isEmpty()) {
      map.removeKey(key);
    } else {
      map.updateValue(key, bytes(entries));
    }
  }

  private static TreeMap<Integer, Long> weights(byte[] bytes) {
    TreeMap<Integer, Long> weights = new TreeMap<>();
    if (bytes != null) {
      ByteBuffer in = ByteBuffer.wrap(bytes);
      while (in.hasRemaining()) {
        weights.put(in.getInt(), in.getLong());
      }
    }
    return weights;
  }

  private static byte[] bytes(TreeMap<Integer, Long> weights) {
    ByteBuffer out = ByteBuffer.allocate(weights.size() * (Integer.BYTES + Long.BYTES));
    weights.forEach((depth, weight) -> out.putInt(depth).putLong(weight));
    return out.array();
  }

  private static Map<PackedRow, long[]> entries(byte[] bytes) {
    Map<PackedRow, long[]> entries = new LinkedHashMap<>();
    if (bytes != null) {
      ByteBuffer in = ByteBuffer.wrap(bytes);
      while (in.hasRemaining()) {
        long weight = in.getLong();
        byte[] row = new byte[in.getInt()];
        in.get(row);
        entries.put(PackedRow.of(row, 0), new long[] {weight});
      }
    }
    return entries;
  }

  private static byte[] bytes(Map<PackedRow, long[]> entries) {
    int size = 0;
    for (PackedRow row : entries.keySet()) {
      size += Long.BYTES + Integer.BYTES + row.row().length;
    }
    ByteBuffer out = ByteBuffer.allocate(size);
    entries.forEach((row, weight) -> out.putLong(weight[0]).putInt(row.row().length).put(row.row()));
    return out.array();
  }
}
