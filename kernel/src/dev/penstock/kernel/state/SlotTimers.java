package dev.penstock.kernel.state;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;

/**
 * The timers of the members of a shared job in one task. They lie together under slot 0, which nobody has, in the order in which they are due; so the timers of all members that are due are one scan,
 * and the first of them is one seek. An entry is the time (see {@link EventTime}), and the group that waits for it: slot, operator, length of the key, key.
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

  /** Takes the timers that are due at a watermark, in their order. */
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

  /** When the first timer is due. */
  static long first(TaskState state) {
    try (TaskState.Entries all = state.scan(ALL)) {
      if (!all.hasNext()) {
        return NEVER;
      }
      all.next();
      return timer(all.key()).due;
    }
  }

  /** Removes all timers of some slots. They are not together, so this reads all that there are. */
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
