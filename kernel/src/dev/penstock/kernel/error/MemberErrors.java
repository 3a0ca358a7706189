package dev.penstock.kernel.error;

/**
 * Errors of the queries of a shared job. A query's code outlives the tasks that run it, and its slot in the job is unknown when it is compiled,
 * so the task sets the query that it works for.
 */
public final class MemberErrors {
  private record Turn(ErrorChannel channel, int slot) {}

  private static final ThreadLocal<Turn> NOW = new ThreadLocal<>();

  private MemberErrors() {}

  /** Sets the query that this thread works for. */
  public static void begin(ErrorChannel channel, int slot) {
    NOW.set(new Turn(channel, slot));
  }

  public static void end() {
    NOW.remove();
  }

  static void report(String expression, String error, String row, long weight) {
    Turn turn = NOW.get();
    turn.channel.report(turn.slot, expression, error, row, weight);
  }
}
