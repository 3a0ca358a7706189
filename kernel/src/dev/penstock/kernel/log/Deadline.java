package dev.penstock.kernel.log;

/** A deadline on the monotonic clock: setting the wall clock neither shortens nor lengthens a wait. */
final class Deadline {
  private static final long NANOS = 1_000_000L;

  private final long at;

  private Deadline(long at) {
    this.at = at;
  }

  /** {@code millis} from now. */
  static Deadline in(long millis) {
    return new Deadline(System.nanoTime() + millis * NANOS);
  }

  /** Milliseconds left, rounded up; zero or less when it has passed. */
  long left() {
    return -Math.floorDiv(System.nanoTime() - at, NANOS);
  }

  boolean passed() {
    return left() <= 0;
  }
}
