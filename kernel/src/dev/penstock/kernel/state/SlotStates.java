package dev.penstock.kernel.state;

import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.List;

/** The state of the members of a shared job in one task, and its counters. */
public final class SlotStates {
  final TaskState state;
  final SlotSizes sizes;

  public SlotStates(StoredState.Opened opened, SlotSizes sizes) {
    state = opened.state;
    this.sizes = sizes;
  }

  /** Removes and returns the timers that are due at a watermark (Unix ms), in order. */
  public List<SlotTimers.Timer> due(long watermark) {
    return SlotTimers.take(state, EventTime.shifted(watermark));
  }

  /** Due time of the first timer, in Spark's time ({@link EventTime}). {@code before}: its value before the task. */
  public long firstDue(long before) {
    return state.timersChanged ? SlotTimers.first(state) : before;
  }

  /** Removes all state of some slots. */
  public void sweep(Collection<Integer> slots) {
    if (slots.isEmpty()) {
      return;
    }
    SlotTimers.sweep(state, slots);
    for (int slot : slots) {
      try (TaskState.Entries all = state.scan(ByteBuffer.allocate(Integer.BYTES).putInt(slot).array())) {
        while (all.hasNext()) {
          all.next();
          state.remove(all.key());
        }
      }
    }
  }
}
