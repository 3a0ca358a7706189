package dev.penstock.kernel;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.StreamingQueryListener;

/**
 * Adds up, per job, what its queries observe while they run: the rows that came too late for every window. Counted per finished
 * epoch, in this process.
 */
public final class Observed extends StreamingQueryListener {
  private static final Map<String, Long> LATE = new ConcurrentHashMap<>();

  private Observed() {}

  /** Listens to all queries of a session; called once when the session is made. */
  public static void install(SparkSession spark) {
    spark.streams().addListener(new Observed());
  }

  static long lateRows(String job) {
    return LATE.getOrDefault(job, 0L);
  }

  @Override
  public void onQueryStarted(QueryStartedEvent event) {}

  @Override
  public void onQueryProgress(QueryProgressEvent event) {
    for (Map.Entry<String, Row> metric : event.progress().observedMetrics().entrySet()) {
      Row late = metric.getValue();
      if (metric.getKey().startsWith("penstock_late") && !late.isNullAt(0)) {
        LATE.merge(event.progress().name(), late.getLong(0), Long::sum);
      }
    }
  }

  @Override
  public void onQueryTerminated(QueryTerminatedEvent event) {}
}
