package dev.penstock.kernel.log;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.LongFunction;

/**
 * The members of a shared job as its clock sees them. Each has a slot; slots increase in the order of joining.
 *
 * <p>An offset contains the newest slot at that time. A member starts with the epoch whose end includes its slot and whose start does not: in that epoch it alone reads its
 * history, from its seeds or the log, up to the end of the epoch. After that it reads the same as all others. So a replayed epoch has the same rows for the same members, no matter who has joined since.
 *
 * <p>Not thread-safe: the owner must serialise calls.
 */
final class Roster {
  private record Seed(long lsn, List<LogSlice> slices) {}

  private final Map<Integer, Map<Integer, Seed>> seeds = new HashMap<>();
  private final TreeMap<Integer, String> layouts = new TreeMap<>();
  private final Map<Integer, Long> limits = new HashMap<>();
  private final Map<Integer, long[][]> closings = new HashMap<>();
  private int last;
  private int durable;

  void seed(int slot, int object, long lsn, List<LogSlice> slices) {
    seeds.computeIfAbsent(slot, s -> new HashMap<>()).put(object, new Seed(lsn, slices));
  }

  void join(int slot, String layout, long limit, long[][] closes) {
    closings.put(slot, closes);
    layouts.put(slot, layout);
    if (limit > 0) {
      limits.put(slot, limit);
    }
    last = Math.max(last, slot);
  }

  void leave(int slot) {
    layouts.remove(slot);
    seeds.remove(slot);
    limits.remove(slot);
    closings.remove(slot);
  }

  /** The watermarks before which no member emits anything; empty if a member can emit at any time. */
  long[][] closings() {
    return closings.values().stream().anyMatch(of -> of.length == 0)
        ? new long[0][]
        : closings.values().stream().flatMap(Arrays::stream).toArray(long[][]::new);
  }

  /** Whether a member's state is close to its limit. {@code sizes}: slot, operator, rows and bytes of each operator. */
  boolean large(long[] sizes) {
    Map<Integer, Long> sums = new HashMap<>();
    for (int i = 0; !limits.isEmpty() && i < sizes.length; i += 4) {
      sums.merge((int) sizes[i], sizes[i + 3], Long::sum);
    }
    return limits.entrySet().stream().anyMatch(e -> sums.getOrDefault(e.getKey(), 0L) >= e.getValue() / 10 * 8);
  }

  /** The newest slot. */
  int last() {
    return last;
  }

  /** The newest slot that can start now: the seeds of a new member must not be ahead of {@code head}. */
  int ready(int begun, long head) {
    for (int slot : layouts.tailMap(begun, false).keySet()) {
      if (seeded(slot) > head) {
        return slot - 1;
      }
    }
    return Math.max(begun, last);
  }

  /** The LSN that an epoch in which members start must reach: that of their seeds, because they never read earlier entries. */
  long reach(int begun, int ready) {
    return layouts.subMap(begun, false, ready, true).keySet().stream().mapToLong(this::seeded).max().orElse(0);
  }

  /** The LSN after which a member reads an object if it skips the history; otherwise 0. */
  long goesOn(int slot, int object) {
    Seed seed = seeds.getOrDefault(slot, Map.of()).get(object);
    return seed == null || !seed.slices.isEmpty() ? 0 : seed.lsn;
  }

  private long seeded(int slot) {
    return seeds.getOrDefault(slot, Map.of()).values().stream().mapToLong(Seed::lsn).max().orElse(0);
  }

  Map<Integer, String> layouts() {
    return new HashMap<>(layouts);
  }

  /** Notes that an epoch that ends with this slot is durable: its members will not start again. */
  void durable(int slot) {
    durable = Math.max(durable, slot);
  }

  /** The LSN after which members that have yet to start read the log: 0 if there are any, because one may read all of it. */
  long needs() {
    return layouts.tailMap(durable, false).isEmpty() ? Long.MAX_VALUE : 0;
  }

  /**
   * The slices of an object in an epoch: the shared ones, and those of members that start with it.
   *
   * @param since the time from an LSN to the end of the epoch
   */
  List<LogSlice> slices(
      int object, LogOffset start, LogOffset end, EpochInputs inputs, List<LogSlice> shared, LongFunction<Timeline> since) {
    if (end.roster == 0) {
      return shared;
    }
    List<LogSlice> out = new ArrayList<>();
    for (int slot : layouts.subMap(start.roster, false, end.roster, true).keySet()) {
      Seed seed = seeds.getOrDefault(slot, Map.of()).get(object);
      long after = 0;
      if (seed != null) {
        seed.slices.forEach(slice -> out.add(slice.to(-slot)));
        after = seed.lsn;
      }
      List<LogSlice> history = inputs.history(object, after, end.lsn);
      Timeline line = history.isEmpty() ? null : since.apply(after);
      history.forEach(slice -> out.add(slice.with(line.before(object, slice)).to(-slot)));
    }
    if (start.roster > 0) {
      shared.forEach(slice -> out.add(slice.to(start.roster)));
    }
    return out;
  }
}
