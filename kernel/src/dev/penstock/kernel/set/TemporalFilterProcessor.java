package dev.penstock.kernel.set;

import dev.penstock.kernel.state.StateBytes;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;

/** Maintains the rows of a {@link TemporalFilter}; see there for the contract. */
final class TemporalFilterProcessor extends StatefulProcessor<Row, Row, Row> {
  private static final long serialVersionUID = 1L;
  private static final long SECOND = 1000;

  private final int keyCount;
  private transient ValueState<byte[]> state;

  TemporalFilterProcessor(int keyCount) {
    this.keyCount = keyCount;
  }

  /** A row that is waiting (not inside) or present, its weight, and its timer. */
  private static final class Held {
    long enter = Long.MIN_VALUE;
    long exit = Long.MAX_VALUE;
    long weight;
    boolean inside;
    long timer = Long.MAX_VALUE;

    void write(StateBytes.Out out) {
      out.varint(enter);
      out.varint(exit);
      out.varint(weight);
      out.bool(inside);
      out.varint(timer);
    }

    void read(StateBytes.In in) {
      enter = in.varint();
      exit = in.varint();
      weight = in.varint();
      inside = in.bool();
      timer = in.varint();
    }
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    state = getHandle().getValueState("row", Encoders.BINARY(), TTLConfig.NONE());
  }

  @Override
  public scala.collection.Iterator<Row> handleInputRows(
      Row key, scala.collection.Iterator<Row> rows, TimerValues timers) {
    long now = now(timers);
    Held held = load();
    long arrived = 0;
    while (rows.hasNext()) {
      Row row = rows.next();
      held.enter = row.isNullAt(keyCount) ? Long.MIN_VALUE : row.getLong(keyCount);
      held.exit = row.isNullAt(keyCount + 1) ? Long.MAX_VALUE : row.getLong(keyCount + 1);
      arrived += row.getLong(keyCount + 2);
    }
    long out = advance(held, now);
    if (now < held.exit) {
      held.weight += arrived;
      if (held.inside) {
        out += arrived;
      }
    }
    save(held, timers.getCurrentWatermarkInMs());
    return emit(key, out);
  }

  @Override
  public scala.collection.Iterator<Row> handleExpiredTimer(Row key, TimerValues timers, ExpiredTimerInfo timer) {
    Held held = load();
    if (held.timer == timer.getExpiryTimeInMs()) {
      held.timer = Long.MAX_VALUE; // Spark removes a timer that has fired
    }
    long out = advance(held, now(timers));
    save(held, timers.getCurrentWatermarkInMs());
    return emit(key, out);
  }

  private static long now(TimerValues timers) {
    return Math.floorDiv(timers.getCurrentWatermarkInMs(), SECOND) * SECOND;
  }

  /** Updates the row to the current time, and returns the weight to emit. */
  private static long advance(Held held, long now) {
    if (now >= held.exit) {
      long out = held.inside ? -held.weight : 0;
      held.weight = 0;
      held.inside = false;
      return out;
    }
    if (!held.inside && held.enter <= now && held.enter < held.exit) {
      held.inside = true;
      return held.weight;
    }
    return 0;
  }

  private Held load() {
    Held held = new Held();
    byte[] known = state.get();
    if (known != null) {
      held.read(new StateBytes.In(known));
    }
    return held;
  }

  private void save(Held held, long watermark) {
    boolean forEver = held.inside && held.exit == Long.MAX_VALUE;
    boolean keep = held.weight != 0 && !forEver && held.enter < held.exit;
    long next = keep ? held.inside ? held.exit : held.enter : Long.MAX_VALUE;
    if (next != Long.MAX_VALUE) {
      // The first watermark whose floor reaches it; Spark ignores a timer that the watermark has passed.
      next = Math.max(-Math.floorDiv(-next, SECOND) * SECOND, watermark);
    }
    if (next != held.timer) {
      if (held.timer != Long.MAX_VALUE) {
        getHandle().deleteTimer(held.timer);
      }
      if (next != Long.MAX_VALUE) {
        getHandle().registerTimer(next);
      }
      held.timer = next;
    }
    if (keep) {
      StateBytes.Out out = new StateBytes.Out();
      held.write(out);
      state.update(out.toByteArray());
    } else {
      state.clear();
    }
  }

  private scala.collection.Iterator<Row> emit(Row key, long weight) {
    List<Row> rows = new ArrayList<>(1);
    if (weight != 0) {
      Object[] values = new Object[keyCount + 1];
      for (int i = 0; i < keyCount; i++) {
        values[i] = key.get(i);
      }
      values[keyCount] = weight;
      rows.add(RowFactory.create(values));
    }
    return scala.jdk.javaapi.CollectionConverters.asScala(rows.iterator());
  }
}
