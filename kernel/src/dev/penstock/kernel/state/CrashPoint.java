package dev.penstock.kernel.state;

import java.util.concurrent.atomic.AtomicInteger;

/** Crash points of the JVM, like Python's (`penstock.disk.crash`): named steps at which a test kills the process without clean-up. Their names begin with {@code jvm.}. */
public final class CrashPoint {
  private static final String[] WANTED = System.getenv().getOrDefault("PENSTOCK_CRASH_AT", "").split(":");
  private static final AtomicInteger LEFT = new AtomicInteger(WANTED.length > 1 ? Integer.parseInt(WANTED[1]) : 1);

  private CrashPoint() {}

  /** Marks a step. Halts the JVM here if the environment names this step; otherwise does nothing. */
  public static void reached(String step) {
    if (step.equals(WANTED[0]) && LEFT.decrementAndGet() == 0) {
      Runtime.getRuntime().halt(137);
    }
  }
}
