package dev.penstock.kernel.state;

import java.lang.ref.WeakReference;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.util.AccumulatorV2;
import scala.Option;

/** Change in the state of each operator of each query of a shared job since the job was started, in rows and bytes. */
public final class SlotSizes extends AccumulatorV2<SlotSizes.Change, Map<Long, long[]>> {
  private static final long serialVersionUID = 1L;
  private static final Map<Long, WeakReference<SlotSizes>> ALL = new ConcurrentHashMap<>();

  /** A change of an operator's state. */
  public record Change(long place, long rows, long bytes) {}

  /** Packs the query's slot and the operator's number in the query. */
  static long place(int slot, int operator) {
    return (long) slot << 32 | operator;
  }

  static int slot(long place) {
    return (int) (place >> 32);
  }

  private final HashMap<Long, long[]> sums;

  private SlotSizes(HashMap<Long, long[]> sums) {
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

  /** Separate counters for a task that the driver runs itself; merge them into these afterwards. */
  public SlotSizes apart() {
    return new SlotSizes(new HashMap<>());
  }

  synchronized void add(long place, long rows, long bytes) {
    long[] sum = sums.computeIfAbsent(place, p -> new long[2]);
    sum[0] += rows;
    sum[1] += bytes;
  }

  @Override
  public void add(Change change) {
    add(change.place, change.rows, change.bytes);
  }

  @Override
  public synchronized boolean isZero() {
    return sums.isEmpty();
  }

  @Override
  public synchronized SlotSizes copy() {
    HashMap<Long, long[]> copies = new HashMap<>();
    sums.forEach((place, sum) -> copies.put(place, sum.clone()));
    return new SlotSizes(copies);
  }

  @Override
  public synchronized void reset() {
    sums.clear();
  }

  @Override
  public synchronized void merge(AccumulatorV2<Change, Map<Long, long[]>> other) {
    ((SlotSizes) other).sums.forEach((place, sum) -> add(place, sum[0], sum[1]));
  }

  @Override
  public synchronized Map<Long, long[]> value() {
    return new TreeMap<>(copy().sums);
  }
}
