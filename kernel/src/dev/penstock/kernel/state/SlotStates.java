package dev.penstock.kernel.state;

import java.nio.ByteBuffer;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;

/** The state of the members of a shared job in one task, and the counters of what each keeps. */
public final class SlotStates {
  final TaskState state;
  final SlotSizes sizes;

  /** To be called in a processor's {@code init}. */
  public SlotStates(StatefulProcessorHandle handle, SlotSizes sizes) {
    state = TaskState.of(handle);
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
