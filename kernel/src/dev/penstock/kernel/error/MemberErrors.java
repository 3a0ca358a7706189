package dev.penstock.kernel.error;

/**
 * Errors of the queries of a shared job. Their code outlives the task that it runs in, and the place of a query in its job is not known when it is compiled;
 * so the task says for whom it works.
 */
public final class MemberErrors {
  private record Turn(ErrorChannel channel, int slot) {}

  private static final ThreadLocal<Turn> NOW = new ThreadLocal<>();

  private MemberErrors() {}

  /** From here on this thread works for a query. */
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
