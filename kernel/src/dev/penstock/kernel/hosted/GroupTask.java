package dev.penstock.kernel.hosted;

import dev.penstock.kernel.error.ErrorChannel;
import dev.penstock.kernel.error.MemberErrors;
import dev.penstock.kernel.log.EpochLoop;
import dev.penstock.kernel.log.EpochState;
import dev.penstock.kernel.log.PackedOutput;
import dev.penstock.kernel.log.Written;
import dev.penstock.kernel.state.EventTime;
import dev.penstock.kernel.state.SlotSizes;
import dev.penstock.kernel.state.SlotStates;
import dev.penstock.kernel.state.SlotTimers;
import dev.penstock.kernel.state.StoredState;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.streaming.TimerValues;

/**
 * Runs the keyed operators of all members at one depth over the rows of an epoch, one task per partition of the state: each reads one version of its partition and commits the next. Members do not
 * see each other's state. Groups of a slot without a member are ignored.
 *
 * <p>Event time: first the task processes the rows of the epoch at the watermark before it (new members have none). Then, at the watermark that the epoch reaches, it processes the rows that operators
 * of smaller depths emitted at that watermark, and the timers that are due. Each operator sees the same as in two epochs of which the second only advances time, so rows that one operator
 * emits when time advances are not late for the next.
 */
final class GroupTask implements Serializable {
  private static final long serialVersionUID = 1L;

  /** Result of a task: its output, its rows for operators of greater depths, and the new version of its partition of the state. */
  record Done(int partition, Written written, ArrayList<Onward.Part> onward, EpochState state) implements Serializable {}

  /**
   * The work of one task.
   *
   * @param partition of the state
   * @param state that partition's version before the task
   * @param rows its rows; null if they come through a shuffle ({@code shuffled})
   * @param after its rows at the watermark that the epoch reaches
   */
  record Piece(
      int index, int partition, EpochState state, ArrayList<Onward.Part> rows, ArrayList<Onward.Part> after, Partition shuffled)
      implements Partition {}

  private final HostTable.Reference table;
  private final StoredState state;
  private final int depth;
  private final int partitions;
  private final PackedOutput output;
  private final EpochLoop.Times times;

  GroupTask(HostTable.Reference table, StoredState state, int depth, EpochLoop.Epoch epoch) {
    this.table = table;
    this.state = state;
    this.depth = depth;
    this.partitions = epoch.partitions();
    this.output = epoch.output();
    this.times = epoch.times();
  }

  /** The last location of the piece's partition of the state. */
  List<String> places(Piece piece) {
    return state.places(depth, piece.partition);
  }

  /** Processes a piece; {@code groups}: its rows. */
  Done work(Piece piece, Groups groups, ErrorChannel errors, SlotSizes sizes) throws IOException {
    try (PackedOutput.Task out = output.task()) {
      return work(piece, groups, errors, sizes, out);
    }
  }

  private Done work(Piece piece, Groups groups, ErrorChannel errors, SlotSizes sizes, PackedOutput.Task out)
      throws IOException {
    StoredState.Opened opened = state.open(depth, piece.partition, piece.state.name());
    Onward.Writer before = new Onward.Writer(output.folder(), partitions, false);
    Onward.Writer after = new Onward.Writer(output.folder(), partitions, true);
    boolean done = false;
    try {
      SlotStates states = new SlotStates(opened, sizes);
      states.sweep(table.sweeps());
      Members members = new Members(table.get(), states, errors, out, before);
      groups.each(members::read);
      members.flush();
      if (times.after() != EpochLoop.Times.NONE) {
        members.advance(after);
        Groups.of(piece.after).each(members::read);
        long first = states.firstDue(piece.state.due());
        while (first <= EventTime.shifted(times.after())) {
          for (SlotTimers.Timer timer : states.due(times.after())) {
            members.expire(timer);
          }
          first = states.firstDue(first);
        }
        members.flush();
      }
      Written written = out.finish();
      ArrayList<Onward.Part> parts = new ArrayList<>(before.finish());
      parts.addAll(after.finish());
      long due = states.firstDue(piece.state.due());
      EpochState made = new EpochState(opened.commit(), due);
      members.release();
      done = true;
      return new Done(piece.partition, written, parts, made);
    } finally {
      if (!done) {
        opened.abort();
        out.discard();
        before.discard();
        after.discard();
      }
    }
  }

  /** The members' code in one task. */
  private final class Members {
    /** Buffered rows of a member at which they are combined. */
    private static final int WAITING = 1 << 16;

    private final HostTable host;
    private final SlotStates states;
    private final ErrorChannel errors;
    private final PackedOutput.Task out;
    private Onward.Writer onward;
    private boolean reached;
    private final Map<Integer, Turn> turns = new HashMap<>();

    Members(HostTable host, SlotStates states, ErrorChannel errors, PackedOutput.Task out, Onward.Writer onward) {
      this.host = host;
      this.states = states;
      this.errors = errors;
      this.out = out;
      this.onward = onward;
    }

    /** Moves all members to the watermark that the epoch reaches. */
    void advance(Onward.Writer to) {
      onward = to;
      reached = true;
    }

    /** The member of a slot; null if there is none. A member that leaves during the task stays until its end. */
    private Turn turn(int slot) {
      return turns.computeIfAbsent(slot, s -> host.entry(s) == null ? null : new Turn(s, host.entry(s)));
    }

    void read(int slot, int operator, byte[] key, Iterator<byte[]> rows) throws IOException {
      TaskContext.get().killTaskIfInterrupted();
      Turn turn = turn(slot);
      if (turn == null) {
        return;
      }
      if (operator == Member.OUTPUT) {
        while (rows.hasNext()) {
          out.write(slot, rows.next());
        }
      } else if (operator == Member.LATE) {
        while (rows.hasNext()) {
          out.late(slot, Packed.number(rows.next()));
        }
      } else if (turn.entry.depths()[operator] > depth) {
        while (rows.hasNext()) {
          turn.add(operator, key, rows.next());
        }
      } else {
        turn.work(code -> code.apply(operator, key, rows, turn.time(), turn));
      }
    }

    /** Fires a timer of a group. */
    void expire(SlotTimers.Timer timer) {
      TaskContext.get().killTaskIfInterrupted();
      Turn turn = turn(timer.slot());
      if (turn != null) {
        turn.work(code -> code.expire(timer, turn.time(), turn));
      }
    }

    /** Emits the buffered rows. */
    void flush() {
      turns.values().forEach(turn -> turn.work(code -> code.flush(turn)));
    }

    /** Returns the code for use by later tasks. */
    void release() {
      turns.values().forEach(Turn::release);
    }

    /** One member. */
    private final class Turn implements MemberCode.Out {
      private final int slot;
      private final HostTable.Entry entry;
      private MemberCode code;

      Turn(int slot, HostTable.Entry entry) {
        this.slot = slot;
        this.entry = entry;
      }

      /** The watermark at which the member works. */
      private TimerValues time() {
        return EventTime.at(reached ? times.after() : slot <= times.begun() ? times.before() : EpochLoop.Times.NONE);
      }

      @Override
      public void add(int operator, byte[] key, byte[] row) throws IOException {
        onward.add(entry.depths()[operator], new Packed(slot, operator, key, row));
      }

      @Override
      public void put(UnsafeRow row) throws IOException {
        out.write(slot, row);
      }

      void work(Work work) {
        MemberErrors.begin(errors, slot);
        LateRow.enter(rows -> out.late(slot, rows));
        try {
          if (code == null) {
            code = entry.borrow();
            code.enter(slot, states);
          }
          work.run(code);
          if (code.waiting() >= WAITING) {
            code.flush(this);
          }
        } catch (Exception | LinkageError | StackOverflowError e) {
          throw MemberFailed.of(slot, e);
        } finally {
          LateRow.enter(null);
          MemberErrors.end();
        }
      }

      void release() {
        if (code != null) {
          code.leave();
          entry.giveBack(code);
        }
      }
    }
  }

  private interface Work {
    void run(MemberCode code) throws Exception;
  }
}
