package dev.penstock.kernel.log;

import dev.penstock.kernel.state.SlotTimers;
import java.io.Serializable;

/**
 * A partition of the state of a shared job after an epoch.
 *
 * @param name what the version is called; empty if there is none yet
 * @param due when its first timer is due, in Spark's time; {@link SlotTimers#NEVER} if it has none
 */
public record EpochState(String name, long due) implements Serializable {
  public static final EpochState NOTHING = new EpochState("", SlotTimers.NEVER);
}
