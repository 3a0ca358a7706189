package dev.penstock.kernel.hosted;

import dev.penstock.kernel.hosted.ReplicaRows.Bytes;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The contents of a lookup table at one LSN and its changes up to another, each with its LSN: so it knows a key's row at every LSN in between. A key has at most one row after a commit.
 *
 * <p>Tasks read it only while it does not change.
 */
final class Replica implements AutoCloseable {
  /** The tasks' read access. */
  interface View {
    /** The packed row of a key at an LSN; null if there is none. */
    byte[] find(byte[] key, long lsn);
  }

  /** A row as of an LSN ({@code row} null: none), and the version before it. */
  private record Version(long lsn, byte[] row, Version before) {}

  /** The sum of the changes of a key in one commit. */
  private static final class Net {
    private final List<byte[]> rows = new ArrayList<>(2);
    private final List<Long> weights = new ArrayList<>(2);

    void add(byte[] row, long weight) {
      for (int i = 0; i < rows.size(); i++) {
        if (Arrays.equals(rows.get(i), row)) {
          weights.set(i, weights.get(i) + weight);
          return;
        }
      }
      rows.add(row);
      weights.add(weight);
    }

    boolean nothing() {
      return weights.stream().allMatch(weight -> weight == 0);
    }

    byte[] row() {
      for (int i = 0; i < rows.size(); i++) {
        if (weights.get(i) > 0) {
          return rows.get(i);
        }
      }
      return null;
    }
  }

  private final ReplicaRows rows = new ReplicaRows();
  private long from;
  private long until;
  private Map<Bytes, Version> changes = Map.of();
  private final Map<Bytes, Net> commit = new HashMap<>();
  private long lsn;

  /** An empty table at an LSN. */
  Replica(long lsn) {
    from = lsn;
    until = lsn;
  }

  long from() {
    return from;
  }

  long until() {
    return until;
  }

  /** Merges its changes into its contents. */
  void settle() {
    changes.forEach((key, newest) -> rows.put(key, newest.row));
    changes = Map.of();
    from = until;
  }

  /** Discards its changes. */
  void back() {
    changes = Map.of();
    until = from;
  }

  /** Adds a change of a row. Changes must come commit by commit, in commit order. */
  void change(long at, byte[] key, byte[] row, long weight) {
    if (at != lsn) {
      take();
      lsn = at;
    }
    commit.computeIfAbsent(new Bytes(key), k -> new Net()).add(row, weight);
  }

  /** Marks all changes up to an LSN as added. */
  void changed(long upTo) {
    take();
    until = upTo;
  }

  private void take() {
    if (commit.isEmpty()) {
      return;
    }
    if (changes.isEmpty()) {
      changes = new HashMap<>();
    }
    commit.forEach((key, net) -> {
      if (!net.nothing()) {
        changes.put(key, new Version(lsn, net.row(), changes.get(key)));
      }
    });
    commit.clear();
  }

  /** Applies the added changes, which undo changes in the contents, regardless of their commits. The table is then at an earlier LSN. */
  void undone(long at) {
    commit.forEach((key, net) -> {
      byte[] now = rows.get(key);
      if (now != null) {
        net.add(now, 1);
      }
      rows.put(key, net.row());
    });
    commit.clear();
    from = at;
    until = at;
  }

  View view() {
    Map<Bytes, Version> newer = changes;
    return (key, at) -> {
      Bytes wanted = new Bytes(key);
      for (Version v = newer.isEmpty() ? null : newer.get(wanted); v != null; v = v.before) {
        if (v.lsn <= at) {
          return v.row;
        }
      }
      return rows.get(wanted);
    };
  }

  @Override
  public void close() {
    rows.close();
  }
}
