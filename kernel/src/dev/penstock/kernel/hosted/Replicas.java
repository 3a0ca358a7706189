package dev.penstock.kernel.hosted;

import dev.penstock.kernel.log.EpochInput;
import dev.penstock.kernel.log.EpochLoop;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.IntPredicate;
import java.util.stream.Collectors;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * The lookup tables of a job's members, each at the LSN at which an epoch begins, with the changes of that epoch. They advance with each epoch. A run starts from the contents that Python
 * supplies, from which it undoes the changes that the job has yet to read. So the rows of a replayed epoch find the same rows as before.
 *
 * <p>A new member has replicas of its own in its first epoch, because it reads the history of the table together with that of its other inputs.
 */
final class Replicas implements AutoCloseable {
  private final EpochLoop loop;
  private final Map<String, Replica> shared = new HashMap<>();
  /** Replicas that only a new member of the last epoch has read. */
  private final List<Replica> own = new ArrayList<>();

  Replicas(EpochLoop loop) {
    this.loop = loop;
  }

  /** The members' views for an epoch, by slot and table. */
  Map<Integer, Map<String, Replica.View>> prepare(HostTable host, EpochLoop.Epoch epoch) throws IOException {
    own.forEach(Replica::close);
    own.clear();
    Map<Integer, Map<String, Replica.View>> views = new HashMap<>();
    Map<String, Replica> fresh = new HashMap<>();
    Map<String, Replica.View> known = new HashMap<>();
    Map<Integer, List<Lookup.Table>> tables = new HashMap<>();
    host.members().forEach((slot, entry) -> {
      if (!entry.tables().isEmpty()) {
        tables.put(slot, entry.tables());
      }
    });
    Set<String> used = tables.values().stream().flatMap(List::stream).map(Lookup.Table::id).collect(Collectors.toSet());
    for (String id : List.copyOf(shared.keySet())) {
      if (!used.contains(id)) {
        shared.remove(id).close();
      }
    }
    for (Map.Entry<Integer, List<Lookup.Table>> member : tables.entrySet()) {
      int slot = member.getKey();
      Map<String, Replica.View> found = new HashMap<>();
      for (Lookup.Table table : member.getValue()) {
        if (slot > epoch.times().begun()) {
          Replica replica = beginning(slot, table, epoch);
          Replica other = fresh.put(table.id(), replica);
          if (other != null) {
            own.add(other);
          }
          found.put(table.id(), replica.view());
        } else {
          if (!known.containsKey(table.id())) {
            known.put(table.id(), following(table, epoch).view());
          }
          found.put(table.id(), known.get(table.id()));
        }
      }
      views.put(slot, found);
    }
    fresh.forEach((id, replica) -> {
      if (known.containsKey(id)) {
        own.add(replica);
      } else {
        // After this epoch it is the replica for all members.
        Replica old = shared.put(id, replica);
        if (old != null) {
          old.close();
        }
      }
    });
    return views;
  }

  private Replica following(Lookup.Table table, EpochLoop.Epoch epoch) throws IOException {
    Replica replica = shared.get(table.id());
    if (replica != null && replica.until() == epoch.after()) {
      replica.settle();
    } else if (replica != null && replica.from() == epoch.after()) {
      replica.back();
    } else {
      if (replica != null) {
        shared.remove(table.id()).close();
      }
      replica = at(table, epoch.after());
      shared.put(table.id(), replica);
    }
    read(replica, table, epoch.inputs(), to -> to > 0);
    replica.changed(epoch.upTo());
    return replica;
  }

  private Replica beginning(int slot, Lookup.Table table, EpochLoop.Epoch epoch) throws IOException {
    long goesOn = loop.goesOn(slot, table.object());
    // A member that reads all history starts with an empty table, before every LSN.
    Replica replica = goesOn > 0 ? at(table, goesOn) : new Replica(-1);
    read(replica, table, epoch.inputs(), to -> to == -slot);
    replica.changed(epoch.upTo());
    return replica;
  }

  /** The table as it was at an LSN. */
  private Replica at(Lookup.Table table, long lsn) throws IOException {
    EpochLoop.Contents contents = loop.contents(table.object());
    if (contents == null) {
      throw new IllegalStateException("the contents of object " + table.object() + " at " + lsn + " are not known");
    }
    Replica replica = new Replica(contents.lsn());
    read(replica, table, List.of(contents.rows()), to -> true);
    replica.changed(contents.lsn());
    replica.settle();
    if (lsn < contents.lsn()) {
      for (Change change : changes(table, loop.changes(table.object(), lsn, contents.lsn()))) {
        replica.change(0, change.key, change.row, -change.weight);
      }
      replica.undone(lsn);
    } else {
      read(replica, table, List.of(loop.changes(table.object(), contents.lsn(), lsn)), to -> true);
      replica.changed(lsn);
      replica.settle();
    }
    return replica;
  }

  private record Change(byte[] key, byte[] row, long weight) {}

  private static List<Change> changes(Lookup.Table table, EpochInput input) throws IOException {
    List<Change> out = new ArrayList<>();
    each(table, input, to -> true, (lsn, change) -> out.add(change));
    return out;
  }

  private static void read(Replica replica, Lookup.Table table, List<EpochInput> inputs, IntPredicate whose)
      throws IOException {
    for (EpochInput input : inputs) {
      if (input.object() == table.object() && input.rows() > 0) {
        each(table, input, whose, (lsn, change) -> replica.change(lsn, change.key, change.row, change.weight));
      }
    }
  }

  private interface Each {
    void take(long lsn, Change change);
  }

  /** Visits the changes of a table whose keys are not NULL. */
  private static void each(Lookup.Table table, EpochInput input, IntPredicate whose, Each to) throws IOException {
    Steps steps = table.steps().copy();
    List<String> columns = input.columns();
    steps.bind(columns);
    int toAt = columns.indexOf(Fan.TO);
    int lsnAt = columns.indexOf("__lsn");
    try (EpochInput.Batches batches = input.open()) {
      while (batches.hasNext()) {
        ColumnarBatch batch = batches.next();
        if (batch.numRows() == 0 || !whose.test(batch.column(toAt).getInt(0))) {
          continue;
        }
        long lsn = batch.column(lsnAt).getLong(0);
        for (var rows = batch.rowIterator(); rows.hasNext(); ) {
          steps.apply(rows.next(), made -> {
            if (!made.isNullAt(0)) {
              to.take(lsn, new Change(made.getBinary(0), made.getBinary(1), made.getLong(2)));
            }
          });
        }
      }
    }
  }

  @Override
  public void close() {
    shared.values().forEach(Replica::close);
    shared.clear();
    own.forEach(Replica::close);
    own.clear();
  }
}
