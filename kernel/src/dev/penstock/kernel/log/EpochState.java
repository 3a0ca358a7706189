package dev.penstock.kernel.log;

import dev.penstock.kernel.state.SlotTimers;
import java.io.Serializable;

/**
 * A partition of the state of a shared job after an epoch.
 *
 * @param name the name of the version; empty if there is none yet
 * @param due due time of its first timer, in Spark's time; {@link SlotTimers#NEVER} if it has none
 */
public record EpochState(String name, long due) implements Serializable {
  public static final EpochState NOTHING = new EpochState("", SlotTimers.NEVER);
}
