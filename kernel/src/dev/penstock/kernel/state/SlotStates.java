package dev.penstock.kernel.state;

import java.nio.ByteBuffer;

/** The state of the members of a shared job in one task, and the counters of what each keeps. */
public final class SlotStates {
  final TaskState state;
  final SlotSizes sizes;

  public SlotStates(StoredState.Opened opened, SlotSizes sizes) {
    state = opened.state;
    this.sizes = sizes;
  }

  /** Removes all state of a slot. */
  public void sweep(int slot) {
    try (TaskState.Entries all = state.scan(ByteBuffer.allocate(Integer.BYTES).putInt(slot).array())) {
      while (all.hasNext()) {
        all.next();
        state.remove(all.key());
      }
    }
  }
}
