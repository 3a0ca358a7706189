package dev.penstock.kernel.state;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.zip.CRC32C;

/**
 * State size of one job after each epoch, in rows and bytes per operator: in operator order, or, in a shared job, by the query's slot and the operator's number.
 *
 * <p>The counters of a run start at zero, so the totals of the last two epochs that changed them are written beside the checkpoint. A
 * restarted job starts from the totals of the epoch before its first, so a replayed epoch is not counted twice.
 */
public final class StateLedger {
  private static final String SUM = "crc32c ";

  private final List<StateSize> sizes = new ArrayList<>();
  private final SlotSizes slots;
  private final Path file;
  private final TreeMap<Long, TreeMap<Long, long[]>> totals = new TreeMap<>();
  private final Set<Integer> gone = new HashSet<>();
  /** The counters' values at the start of this run: an earlier attempt of the same query may have used them. */
  private final Map<Long, long[]> before;
  private TreeMap<Long, long[]> base;

  /** @param slots the counters of the queries that share the job; null for a job of one query */
  public StateLedger(List<StateSize> sizes, SlotSizes slots, Path file) {
    this.sizes.addAll(sizes);
    this.slots = slots;
    this.file = file;
    before = added();
    try {
      if (Files.exists(file)) {
        readAll(Files.readAllLines(file));
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** The last line is the CRC32C of those before it; files of an earlier version have none. */
  private void readAll(List<String> lines) throws IOException {
    try {
      int end = lines.size();
      if (end == 0 || lines.get(end - 1).startsWith(SUM)) {
        end--;
        if (!lines.get(end).equals(SUM + sum(String.join("\n", lines.subList(0, end)) + "\n"))) {
          throw new IllegalArgumentException("checksum");
        }
      }
      lines.subList(0, end).forEach(this::read);
    } catch (RuntimeException e) {
      Damaged damaged = new Damaged(file, "How much state the query has is unknown.");
      damaged.initCause(e);
      throw damaged;
    }
  }

  private static long sum(String text) {
    CRC32C sum = new CRC32C();
    sum.update(text.getBytes(StandardCharsets.UTF_8));
    return sum.getValue();
  }

  /** A line: the epoch, then rows and bytes of each operator, or {@code slot:operator:rows:bytes}. */
  private void read(String line) {
    String[] fields = line.split(" ");
    TreeMap<Long, long[]> values = new TreeMap<>();
    if (slots != null) {
      for (int i = 1; i < fields.length; i++) {
        String[] one = fields[i].split(":");
        values.put(
            SlotSizes.place(Integer.parseInt(one[0]), Integer.parseInt(one[1])),
            new long[] {Long.parseLong(one[2]), Long.parseLong(one[3])});
      }
    } else {
      for (int i = 1; i + 1 < fields.length; i += 2) {
        values.put(i / 2L, new long[] {Long.parseLong(fields[i]), Long.parseLong(fields[i + 1])});
      }
    }
    totals.put(Long.parseLong(fields[0]), values);
  }

  private Map<Long, long[]> added() {
    if (slots != null) {
      return slots.value();
    }
    Map<Long, long[]> out = new TreeMap<>();
    for (int i = 0; i < sizes.size(); i++) {
      out.put((long) i, new long[] {sizes.get(i).rowsAdded(), sizes.get(i).bytesAdded()});
    }
    return out;
  }

  private TreeMap<Long, long[]> now() {
    return totals.isEmpty() ? new TreeMap<>() : totals.lastEntry().getValue();
  }

  /** {@code rows, bytes} of each operator after the last epoch. */
  public synchronized long[] totals() {
    long[] out = new long[sizes.size() * 2];
    now().forEach((i, sum) -> {
      if (i < sizes.size()) {
        out[2 * i.intValue()] = sum[0];
        out[2 * i.intValue() + 1] = sum[1];
      }
    });
    return out;
  }

  /** {@code slot, operator, rows, bytes} of each operator of each query after the last epoch. */
  public synchronized long[] slots() {
    long[] out = new long[now().size() * 4];
    int at = 0;
    for (Map.Entry<Long, long[]> e : now().entrySet()) {
      out[at++] = SlotSizes.slot(e.getKey());
      out[at++] = e.getKey().intValue();
      out[at++] = e.getValue()[0];
      out[at++] = e.getValue()[1];
    }
    return out;
  }

  /** Drops the totals of a query that has left. */
  public synchronized void leave(int slot) {
    gone.add(slot);
  }

  public synchronized long bytes() {
    return now().values().stream().mapToLong(sum -> sum[1]).sum();
  }

  /** Adds the changes of an epoch. */
  public synchronized void settle(long epoch) {
    if (sizes.isEmpty() && slots == null) {
      return;
    }
    if (base == null) {
      totals.tailMap(epoch, true).clear();
      base = new TreeMap<>(now());
      if (slots == null && base.size() != sizes.size()) {
        base.clear();
      }
    }
    TreeMap<Long, long[]> now = new TreeMap<>();
    base.forEach((i, sum) -> now.put(i, sum.clone()));
    added().forEach((i, sum) -> {
      long[] known = before.getOrDefault(i, new long[2]);
      long[] all = now.computeIfAbsent(i, key -> new long[2]);
      all[0] += sum[0] - known[0];
      all[1] += sum[1] - known[1];
    });
    now.keySet().removeIf(place -> gone.contains(SlotSizes.slot(place)));
    if (same(now, now())) {
      return;
    }
    totals.put(epoch, now);
    while (totals.size() > 2) {
      totals.pollFirstEntry();
    }
    save();
  }

  private static boolean same(Map<Long, long[]> a, Map<Long, long[]> b) {
    return a.keySet().equals(b.keySet()) && a.entrySet().stream().allMatch(e -> Arrays.equals(e.getValue(), b.get(e.getKey())));
  }

  private void save() {
    StringBuilder text = new StringBuilder();
    totals.forEach((epoch, values) -> {
      text.append(epoch);
      values.forEach((i, sum) -> {
        text.append(' ');
        if (slots != null) {
          text.append(SlotSizes.slot(i)).append(':').append(i.intValue()).append(':').append(sum[0]).append(':').append(sum[1]);
        } else {
          text.append(sum[0]).append(' ').append(sum[1]);
        }
      });
      text.append('\n');
    });
    try {
      Path beside = file.resolveSibling(file.getFileName() + ".new");
      Files.writeString(beside, text + SUM + sum(text.toString()));
      Files.move(beside, file, StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
