package dev.penstock.kernel.state;

import org.apache.spark.sql.streaming.StatefulProcessorHandle;

/** The state of one operator of a shared job's member. Its processor works on one task after another. */
public final class SlotHandle {
  private final RawHandle raw = new RawHandle(null);
  private final StateSize size = new StateSize(0, this::count);
  private final int operator;
  private final int number;
  private SlotStates states;
  private int slot;

  /**
   * @param operator the operator's index in the member
   * @param number the operator's number in the query, under which its state is counted
   */
  public SlotHandle(int operator, int number) {
    this.operator = operator;
    this.number = number;
  }

  /** The processor's handle. */
  public StatefulProcessorHandle handle() {
    return new CountedHandle(raw, size, true, EventTime.SHIFT);
  }

  private void count(long rows, long bytes) {
    states.sizes.add(SlotSizes.place(slot, number), rows, bytes);
  }

  public void enter(int newSlot, SlotStates newStates) {
    slot = newSlot;
    states = newStates;
    raw.enter(newStates.state);
  }

  public void leave() {
    states = null;
    raw.enter(null);
  }

  /** Switches to the group whose key has these bytes. */
  public void at(byte[] bytes, Object key) {
    raw.at(slot, operator, bytes);
    size.at(key);
  }
}
