package dev.penstock.kernel.state;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;

/**
 * What the operators of one job keep after each epoch: rows and bytes, in the order of the operators.
 *
 * <p>The counters of a run start at zero, so the totals of the last two epochs that changed them are written beside the checkpoint. A
 * restarted job adds to the totals of the last epoch before its first: a replayed epoch is not counted twice.
 */
public final class StateLedger {
  private final List<StateSize> sizes = new ArrayList<>();
  private final Path file;
  private final TreeMap<Long, long[]> totals = new TreeMap<>();
  private long[] base;

  public StateLedger(List<StateSize> sizes, Path file) {
    this.sizes.addAll(sizes);
    this.file = file;
    try {
      if (Files.exists(file)) {
        for (String line : Files.readAllLines(file)) {
          String[] fields = line.split(" ");
          long[] values = new long[fields.length - 1];
          for (int i = 0; i < values.length; i++) {
            values[i] = Long.parseLong(fields[i + 1]);
          }
          totals.put(Long.parseLong(fields[0]), values);
        }
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private long[] none() {
    return new long[sizes.size() * 2];
  }

  /** {@code rows, bytes} of each operator after the last epoch. */
  public synchronized long[] totals() {
    return totals.isEmpty() ? none() : totals.lastEntry().getValue().clone();
  }

  public long bytes() {
    long sum = 0;
    long[] now = totals();
    for (int i = 1; i < now.length; i += 2) {
      sum += now[i];
    }
    return sum;
  }

  /** Adds the changes of an epoch. */
  public synchronized void settle(long epoch) {
    if (sizes.isEmpty()) {
      return;
    }
    if (base == null) {
      totals.tailMap(epoch, true).clear();
      base = totals();
      if (base.length != sizes.size() * 2) {
        base = none();
      }
    }
    long[] now = base.clone();
    for (int i = 0; i < sizes.size(); i++) {
      now[2 * i] += sizes.get(i).rowsAdded();
      now[2 * i + 1] += sizes.get(i).bytesAdded();
    }
    if (java.util.Arrays.equals(now, totals())) {
      return;
    }
    totals.put(epoch, now);
    while (totals.size() > 2) {
      totals.pollFirstEntry();
    }
    save();
  }

  private void save() {
    StringBuilder text = new StringBuilder();
    totals.forEach((epoch, values) -> {
      text.append(epoch);
      for (long v : values) {
        text.append(' ').append(v);
      }
      text.append('\n');
    });
    try {
      Path beside = file.resolveSibling(file.getFileName() + ".new");
      Files.writeString(beside, text);
      Files.move(beside, file, StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
