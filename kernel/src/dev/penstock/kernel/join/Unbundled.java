package dev.penstock.kernel.join;

import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;

/** Runs a processor on the rows of {@link Bundle}s. */
final class Unbundled extends StatefulProcessor<byte[], Row, Row> {
  private static final long serialVersionUID = 1L;
  private final StatefulProcessor<byte[], Row, Row> inner;
  private final boolean moments;

  Unbundled(StatefulProcessor<byte[], Row, Row> inner, boolean moments) {
    this.inner = inner;
    this.moments = moments;
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    inner.setHandle(getHandle());
    inner.init(outputMode, timeMode);
  }

  @Override
  public scala.collection.Iterator<Row> handleInputRows(
      byte[] key, scala.collection.Iterator<Row> bundles, TimerValues timers) {
    return inner.handleInputRows(key, Bundle.rows(key, bundles, moments), timers);
  }

  @Override
  public scala.collection.Iterator<Row> handleExpiredTimer(byte[] key, TimerValues timers, ExpiredTimerInfo timer) {
    return inner.handleExpiredTimer(key, timers, timer);
  }

  @Override
  public void close() {
    inner.close();
  }
}
