package dev.penstock.kernel.error;

import java.util.regex.Pattern;
import org.apache.spark.TaskKilledException;

/** The sentence in which an error is told: Spark's own, without its names for the condition, the query and the way around it. */
public final class ErrorText {
  private static final Pattern REST = Pattern.compile("\\n\\s*(?:== |JVM stacktrace|at )[\\s\\S]*");
  private static final Pattern CONDITION = Pattern.compile("^\\[[A-Z_.0-9]+\\] ");
  private static final Pattern NOISE =
      Pattern.compile("\\s*SQLSTATE: \\w+|\\s*If necessary set \"?[\\w.]+\"? to \"?false\"? to bypass this error\\.?");

  private ErrorText() {}

  /** The sentence for an error of an expression. An exception that is none, because the task is ended, is thrown again. */
  public static String of(Exception error) {
    if (error instanceof InterruptedException || error instanceof TaskKilledException
        || Thread.currentThread().isInterrupted()) {
      throw ErrorText.<RuntimeException>sneaky(error);
    }
    String text = error.getMessage() == null ? error.getClass().getSimpleName() : error.getMessage();
    text = REST.matcher(text).replaceFirst("");
    text = CONDITION.matcher(text).replaceFirst("");
    return NOISE.matcher(text).replaceAll("").strip();
  }

  @SuppressWarnings("unchecked")
  private static <E extends Throwable> RuntimeException sneaky(Throwable e) throws E {
    throw (E) e;
  }
}
