package dev.penstock.kernel.state;

import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.TimerValues;

/**
 * Event time as Spark sees it. Spark's watermark starts at 0, which is 1970, and never goes back, so earlier windows would not close. So
 * Spark gets times that are {@link #SHIFT} later: its 0 is the year 1, before everything. Operators and users see true times.
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

  /** True time at a watermark (Unix ms) of a job that Spark's engine does not run; {@code Long.MIN_VALUE}: there is none yet. */
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

  /** Tells the tasks of the epoch that this thread is about to run which watermark (Unix ms) it reaches; null: none. */
  public static void reaches(Long watermark) {
    SparkContext.getOrCreate().setLocalProperty(REACHED, watermark == null ? null : watermark.toString());
  }

  /** The watermark (Unix ms) that the epoch of this task reaches; null if it has none, or nobody has told. */
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
