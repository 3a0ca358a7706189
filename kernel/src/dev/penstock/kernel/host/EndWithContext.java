package dev.penstock.kernel.host;

import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;

/**
 * Exits the JVM soon after its Spark context stops. A lost cluster or a failed scheduler stops the context and leaves a JVM that
 * answers calls but runs nothing. Python watches for the exit.
 */
public final class EndWithContext extends SparkListener {
  private static final int EXIT_CODE = 86;

  /** Lets the caller that stopped the context finish its last calls. */
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
