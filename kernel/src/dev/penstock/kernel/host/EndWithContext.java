package dev.penstock.kernel.host;

import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;

/**
 * Ends the JVM soon after its Spark context: a cluster that is lost, and a scheduler that fails, stop the context and leave a JVM that
 * answers calls and runs nothing. Its end is what Python watches for.
 */
public final class EndWithContext extends SparkListener {
  private static final int EXIT_CODE = 86;

  /** Whoever has stopped the context may have a last call to make. */
  private static final long GRACE_MS = 3000;

  @Override
  public void onApplicationEnd(SparkListenerApplicationEnd end) {
    Thread thread = new Thread(EndWithContext::exit, "penstock-end");
    thread.setDaemon(true);
    thread.start();
  }

  private static void exit() {
    try {
      Thread.sleep(GRACE_MS);
    } catch (InterruptedException e) {
      return;
    }
    System.exit(EXIT_CODE);
  }
}
