package dev.penstock.kernel.state;

import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.TimerValues;

/**
 * Event time as Spark sees it. Spark's watermark starts at 0, which is 1970, and never goes back, so earlier windows would never close.
 * Spark therefore gets times that are {@link #SHIFT} later: its 0 is the year 1. Operators and users see true times.
 */
public final class EventTime {
  /** Milliseconds from 0001-01-01 to 1970-01-01. */
  public static final long SHIFT = 62_135_596_800_000L;

  private static final String REACHED = "penstock.watermark";

  private EventTime() {}

  /** A watermark (Unix ms) in Spark's time. */
  public static long shifted(long watermark) {
    return watermark <= -SHIFT ? 0 : watermark + SHIFT;
  }

  /** The timers of an operator in true time. */
  record Timers(TimerValues inner) implements TimerValues {
    @Override
    public long getCurrentProcessingTimeInMs() {
      return inner.getCurrentProcessingTimeInMs();
    }

    @Override
    public long getCurrentWatermarkInMs() {
      return inner.getCurrentWatermarkInMs() - SHIFT;
    }
  }

  /** A timer that has fired, in true time. */
  record Fired(ExpiredTimerInfo inner) implements ExpiredTimerInfo {
    @Override
    public long getExpiryTimeInMs() {
      return inner.getExpiryTimeInMs() - SHIFT;
    }
  }

  /** True time at a watermark (Unix ms), for a job that runs outside Spark's streaming engine; {@code Long.MIN_VALUE}: no watermark yet. */
  public static TimerValues at(long watermark) {
    return new Timers(new Fixed(shifted(watermark)));
  }

  private record Fixed(long getCurrentWatermarkInMs) implements TimerValues {
    @Override
    public long getCurrentProcessingTimeInMs() {
      throw new UnsupportedOperationException("there is no processing time");
    }
  }

  /** A timer of {@link SlotTimers} that has fired, in true time. */
  public static ExpiredTimerInfo fired(SlotTimers.Timer timer) {
    return new Fired(timer::due);
  }

  /** Passes the watermark (Unix ms) that the next epoch reaches to the tasks that this thread will start; null: none. */
  public static void reaches(Long watermark) {
    SparkContext.getOrCreate().setLocalProperty(REACHED, watermark == null ? null : watermark.toString());
  }

  /** The watermark (Unix ms) that this task's epoch reaches; null if it has none or {@link #reaches} was not called. */
  public static Long reached() {
    TaskContext task = TaskContext.get();
    String told = task == null ? null : task.getLocalProperty(REACHED);
    Long watermark = told == null ? null : Long.valueOf(told);
    return watermark == null || watermark <= -SHIFT ? null : watermark;
  }

  /** True as long as there is no watermark. */
  public static boolean unknown(TimerValues timers) {
    return timers.getCurrentWatermarkInMs() <= (timers instanceof Timers ? -SHIFT : 0);
  }
}
