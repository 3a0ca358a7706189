package dev.penstock.kernel.state;

import java.lang.ref.WeakReference;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.util.AccumulatorV2;
import scala.Option;

/** How much each query of a shared job keeps: rows and bytes, by the query's slot, as they have changed since the job was started. */
public final class SlotSizes extends AccumulatorV2<SlotSizes.Change, Map<Integer, long[]>> {
  private static final long serialVersionUID = 1L;
  private static final Map<Long, WeakReference<SlotSizes>> ALL = new ConcurrentHashMap<>();

  /** So much more, or less. */
  public record Change(int slot, long rows, long bytes) {}

  private final HashMap<Integer, long[]> sums;

  private SlotSizes(HashMap<Integer, long[]> sums) {
    this.sums = sums;
  }

  public static SlotSizes create(SparkSession spark) {
    SlotSizes sizes = new SlotSizes(new HashMap<>());
    sizes.register(((org.apache.spark.sql.classic.SparkSession) spark).sparkContext(), Option.empty(), false);
    ALL.values().removeIf(r -> r.get() == null);
    ALL.put(sizes.id(), new WeakReference<>(sizes));
    return sizes;
  }

  public static SlotSizes of(long id) {
    WeakReference<SlotSizes> found = ALL.get(id);
    return found == null ? null : found.get();
  }

  public synchronized void add(int slot, long rows, long bytes) {
    long[] sum = sums.computeIfAbsent(slot, s -> new long[2]);
    sum[0] += rows;
    sum[1] += bytes;
  }

  @Override
  public void add(Change change) {
    add(change.slot, change.rows, change.bytes);
  }

  @Override
  public synchronized boolean isZero() {
    return sums.isEmpty();
  }

  @Override
  public synchronized SlotSizes copy() {
    HashMap<Integer, long[]> copies = new HashMap<>();
    sums.forEach((slot, sum) -> copies.put(slot, sum.clone()));
    return new SlotSizes(copies);
  }

  @Override
  public synchronized void reset() {
    sums.clear();
  }

  @Override
  public synchronized void merge(AccumulatorV2<Change, Map<Integer, long[]>> other) {
    ((SlotSizes) other).sums.forEach((slot, sum) -> add(slot, sum[0], sum[1]));
  }

  @Override
  public synchronized Map<Integer, long[]> value() {
    return new TreeMap<>(copy().sums);
  }
}
