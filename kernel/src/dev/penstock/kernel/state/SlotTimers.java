package dev.penstock.kernel.state;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;

/**
 * The timers of the members of a shared job in one task. They are stored together under slot 0, which no member has, ordered by due time; so one scan finds the due timers of all members,
 * and one seek the first of them. An entry is the time (see {@link EventTime}) and the group that waits for it: slot, operator, length of the key, key.
 */
public final class SlotTimers {
  /** There is no timer. */
  public static final long NEVER = Long.MAX_VALUE;

  private static final byte[] NOTHING = {};
  private static final byte[] ALL = new byte[Integer.BYTES];
  private static final int GROUP = Integer.BYTES + Long.BYTES;

  /** A timer in Spark's time, and the group that waits for it. */
  public record Timer(long due, int slot, int operator, byte[] key) {}

  private SlotTimers() {}

  private static byte[] entry(long due, byte[] group) {
    return ByteBuffer.allocate(GROUP + group.length).put(ALL).putLong(due).put(group).array();
  }

  static void register(TaskState state, long due, byte[] group) {
    state.timersChanged = true;
    state.put(entry(due, group), NOTHING);
  }

  static void delete(TaskState state, long due, byte[] group) {
    state.timersChanged = true;
    state.remove(entry(due, group));
  }

  /** Removes and returns the timers that are due at a watermark, in order. */
  static List<Timer> take(TaskState state, long watermark) {
    List<Timer> due = new ArrayList<>();
    try (TaskState.Entries all = state.scan(ALL)) {
      while (all.hasNext()) {
        all.next();
        Timer timer = timer(all.key());
        if (timer.due > watermark) {
          break;
        }
        due.add(timer);
        state.timersChanged = true;
        state.remove(all.key());
      }
    }
    return due;
  }

  /** Due time of the first timer, or {@link #NEVER}. */
  static long first(TaskState state) {
    try (TaskState.Entries all = state.scan(ALL)) {
      if (!all.hasNext()) {
        return NEVER;
      }
      all.next();
      return timer(all.key()).due;
    }
  }

  /** Removes all timers of some slots. A slot's timers are not contiguous, so this reads all timers. */
  static void sweep(TaskState state, Collection<Integer> slots) {
    state.timersChanged = true;
    try (TaskState.Entries all = state.scan(ALL)) {
      while (all.hasNext()) {
        all.next();
        if (slots.contains(timer(all.key()).slot)) {
          state.remove(all.key());
        }
      }
    }
  }

  private static Timer timer(byte[] entry) {
    ByteBuffer in = ByteBuffer.wrap(entry);
    in.getInt();
    long due = in.getLong();
    int slot = in.getInt();
    int operator = in.getInt();
    byte[] key = new byte[in.getInt()];
    in.get(key);
    return new Timer(due, slot, operator, key);
  }
}
