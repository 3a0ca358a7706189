package dev.penstock.kernel.error;

import java.util.regex.Pattern;
import org.apache.spark.TaskKilledException;

/** The message of an error: Spark's own, without the condition, the query context and the suggested workaround. */
public final class ErrorText {
  private static final Pattern REST = Pattern.compile("\\n\\s*(?:== |JVM stacktrace|at )[\\s\\S]*");
  private static final Pattern CONDITION = Pattern.compile("^\\[[A-Z_.0-9]+\\] ");
  private static final Pattern NOISE =
      Pattern.compile("\\s*SQLSTATE: \\w+|\\s*If necessary set \"?[\\w.]+\"? to \"?false\"? to bypass this error\\.?");

  /** Matches byte arrays, which Java prints with a hash code that differs when the row is retracted. */
  private static final Pattern BYTES = Pattern.compile("\\[B@[0-9a-f]+");

  private ErrorText() {}

  /** The message for an error of an expression. Rethrows an exception that ends the task. */
  public static String of(Exception error) {
    if (error instanceof InterruptedException || error instanceof TaskKilledException
        || Thread.currentThread().isInterrupted()) {
      throw ErrorText.<RuntimeException>sneaky(error);
    }
    String text = error.getMessage() == null ? error.getClass().getSimpleName() : error.getMessage();
    text = REST.matcher(text).replaceFirst("");
    text = CONDITION.matcher(text).replaceFirst("");
    text = BYTES.matcher(text).replaceAll("(bytes)");
    return NOISE.matcher(text).replaceAll("").strip();
  }

  @SuppressWarnings("unchecked")
  private static <E extends Throwable> RuntimeException sneaky(Throwable e) throws E {
    throw (E) e;
  }
}
