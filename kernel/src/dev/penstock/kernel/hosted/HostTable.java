package dev.penstock.kernel.hosted;

import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.SparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.SparkSession;

/**
 * The members of one shared job, by slot. A job never reuses a slot, so a query that restarts from scratch has fresh state.
 *
 * <p>Members come and go while the job runs. Tasks work with copies of a member's code, which are compiled once
 * and reused by later tasks. If tasks run in other processes, a reference to the table carries the members as broadcasts.
 */
public final class HostTable {
  private static final Map<String, HostTable> ALL = new ConcurrentHashMap<>();
  private static final AtomicLong NEXT = new AtomicLong();

  /** A member's code, and its idle copies. */
  static final class Entry {
    final byte[] code;
    private final ConcurrentLinkedDeque<MemberCode> free = new ConcurrentLinkedDeque<>();
    private final Broadcast<byte[]> sent;
    private volatile int[] depths;
    private volatile List<Lookup.Table> tables;

    Entry(byte[] code, Broadcast<byte[]> sent) {
      this.code = code;
      this.sent = sent;
    }

    /** An idle copy, or a new one. */
    MemberCode borrow() {
      MemberCode copy = free.pollFirst();
      return copy != null ? copy : new MemberCode(Member.of(code));
    }

    void giveBack(MemberCode copy) {
      free.addFirst(copy);
    }

    /** The depths of the member's operators. */
    int[] depths() {
      if (depths == null) {
        depths = Member.of(code).depths();
      }
      return depths;
    }

    /** The lookup tables that the member reads from replicas. */
    List<Lookup.Table> tables() {
      if (tables == null) {
        tables = Member.of(code).tables;
      }
      return tables;
    }
  }

  private final Map<Integer, Entry> members = new ConcurrentHashMap<>();
  /** The number of the run: each run of a job has its own table. */
  private final long run;
  private volatile List<Integer> sweep = List.of();
  /** The members' views of lookup tables in this epoch, by slot and table. */
  private volatile Map<Integer, Map<String, Replica.View>> views = Map.of();

  private HostTable(long run) {
    this.run = run;
  }

  /** Creates the table for a new run of a job. */
  public static HostTable create(String job) {
    HostTable table = new HostTable(NEXT.incrementAndGet());
    ALL.put(job, table);
    return table;
  }

  public static void drop(String job) {
    ALL.remove(job);
  }

  /** Adds a member. */
  public void put(SparkSession spark, int slot, Member member) {
    byte[] code = member.bytes();
    SparkContext context = ((org.apache.spark.sql.classic.SparkSession) spark).sparkContext();
    Broadcast<byte[]> sent = context.isLocal()
        ? null
        : context.broadcast(code, scala.reflect.ClassTag$.MODULE$.apply(byte[].class));
    members.put(slot, new Entry(code, sent));
  }

  /** Removes a member. Running tasks finish their work for it. */
  public void remove(int slot) {
    members.remove(slot);
  }

  /** Makes tasks remove the state of these slots, which have no members. */
  public void sweep(List<Integer> slots) {
    sweep = List.copyOf(slots);
  }

  /** Sets the members' views of lookup tables, by slot and table. */
  void show(Map<Integer, Map<String, Replica.View>> found) {
    views = found;
  }

  /** A member's views of lookup tables. */
  Map<String, Replica.View> views(int slot) {
    return views.getOrDefault(slot, Map.of());
  }

  /** The greatest depth of an operator. */
  int depth() {
    return members.values().stream().flatMapToInt(entry -> Arrays.stream(entry.depths())).max().orElse(0);
  }

  /** The members' slots and their code. */
  Map<Integer, Entry> members() {
    return members;
  }

  Entry entry(int slot) {
    return members.get(slot);
  }

  /** The table of a job, for tasks. */
  static final class Reference implements Serializable {
    private static final long serialVersionUID = 1L;
    private String job;
    private List<Integer> sweep = List.of();
    private transient HostTable table;

    Reference(String job) {
      this.job = job;
      this.sweep = get().sweep;
    }

    /** The table; an empty one if the job has just ended. */
    HostTable get() {
      return table != null ? table : ALL.getOrDefault(job, new HostTable(0));
    }

    /** The slots whose state was to be removed when the reference was created. */
    List<Integer> sweeps() {
      return sweep;
    }

    private void writeObject(ObjectOutputStream out) throws IOException {
      HostTable known = get();
      out.writeObject(job);
      out.writeLong(known.run);
      out.writeObject(sweep);
      HashMap<Integer, Broadcast<byte[]>> sent = new HashMap<>();
      known.members.forEach((slot, entry) -> {
        if (entry.sent != null) {
          sent.put(slot, entry.sent);
        }
      });
      out.writeObject(sent);
    }

    @SuppressWarnings("unchecked")
    private void readObject(ObjectInputStream in) throws IOException, ClassNotFoundException {
      job = (String) in.readObject();
      long run = in.readLong();
      sweep = (List<Integer>) in.readObject();
      HashMap<Integer, Broadcast<byte[]>> sent = (HashMap<Integer, Broadcast<byte[]>>) in.readObject();
      if (!sent.isEmpty()) {
        // In a process other than the driver, the members are those that were sent.
        table = ALL.compute(job, (name, known) -> known != null && known.run == run ? known : new HostTable(run));
        table.members.keySet().retainAll(sent.keySet());
        sent.forEach((slot, code) -> table.members.computeIfAbsent(slot, s -> new Entry(code.value(), null)));
      }
    }
  }
}
