package dev.penstock.kernel.aggregate;

import dev.penstock.kernel.error.GroupErrors;
import dev.penstock.kernel.state.StateBytes;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
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

/** Maintains the groups of an {@link Aggregate}; see there for the contract. */
final class AggregateProcessor extends StatefulProcessor<Row, Row, Row> {
  private static final long serialVersionUID = 1L;

  private final Combiner combiner;
  private final List<AggFunction> functions;
  private final boolean close;
  private final WindowEnd end;
  private final boolean always;
  private final boolean punctual;
  private final GroupErrors errors;
  private transient ValueState<byte[]> state;
  private transient StateBytes.Out out;

  /**
   * @param always a group, once it exists, remains even without rows
   * @param punctual no row is late: rows for a window that is due belong to it, and it closes with them
   * @param errors reports groups with a value that cannot be computed; null if there can be none
   */
  AggregateProcessor(
      Combiner combiner, List<AggFunction> functions, boolean close, WindowEnd end, boolean always, boolean punctual,
      GroupErrors errors) {
    this.combiner = combiner;
    this.functions = functions;
    this.close = close;
    this.end = end;
    this.always = always;
    this.punctual = punctual;
    this.errors = errors;
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    state = getHandle().getValueState("group", Encoders.BINARY(), TTLConfig.NONE());
    out = new StateBytes.Out();
    for (int i = 0; i < functions.size(); i++) {
      if (functions.get(i).kept() != null) {
        functions.get(i).kept().open(getHandle(), "values" + i);
      }
    }
  }

  @Override
  public scala.collection.Iterator<Row> handleInputRows(
      Row key, scala.collection.Iterator<Row> rows, TimerValues timers) {
    Long due = end.due(key, end.at());
    boolean over = due != null && due <= timers.getCurrentWatermarkInMs();
    if (over && !punctual) {
      return scala.collection.Iterator$.MODULE$.empty();
    }
    List<byte[]> parts = new ArrayList<>(2);
    while (rows.hasNext()) {
      Row row = rows.next();
      parts.add(row.getAs(row.length() - 1));
    }
    Group changes = combiner.merge(parts);
    byte[] known = state.get();
    Group group = Group.kept(functions);
    if (known != null) {
      group.read(new StateBytes.In(known));
    }
    boolean was = always ? known != null : group.weight > 0;
    Object[] before = close || !was ? null : group.results();
    group.apply(changes);
    if (over || (group.weight == 0 && !always)) {
      remove();
      if (due != null && known != null) {
        getHandle().deleteTimer(due);
      }
    } else {
      out.reset();
      group.write(out);
      state.update(out.toByteArray());
      if (due != null && known == null) {
        getHandle().registerTimer(due);
      }
    }
    if (close) {
      return iterator(over && group.weight > 0 ? changes(key, null, group.results()) : List.of());
    }
    Object[] after = always || group.weight > 0 ? group.results() : null;
    return iterator(changes(key, before, after));
  }

  @Override
  public scala.collection.Iterator<Row> handleExpiredTimer(Row key, TimerValues timers, ExpiredTimerInfo timer) {
    byte[] known = state.get();
    if (known == null) {
      return scala.collection.Iterator$.MODULE$.empty();
    }
    List<Row> rows = Collections.emptyList();
    if (close) {
      Group group = Group.kept(functions).read(new StateBytes.In(known));
      if (group.weight > 0) {
        rows = changes(key, null, group.results());
      }
    }
    remove();
    return iterator(rows);
  }

  private void remove() {
    state.clear();
    for (AggFunction f : functions) {
      if (f.kept() != null) {
        f.kept().clear();
      }
    }
  }

  private List<Row> changes(Row key, Object[] before, Object[] after) {
    if (before != null && after != null && Arrays.deepEquals(before, after)) {
      return Collections.emptyList();
    }
    List<Row> rows = new ArrayList<>(2);
    if (before != null) {
      add(rows, key, before, -1);
    }
    if (after != null) {
      add(rows, key, after, 1);
    }
    return rows;
  }

  /** Adds the row of a group, or reports the group if a value cannot be computed. */
  private void add(List<Row> rows, Row key, Object[] results, long weight) {
    GroupErrors.Failed failed = errors == null ? null : GroupErrors.first(results);
    if (failed == null) {
      rows.add(row(key, results, weight));
    } else {
      errors.report(failed, key::get, weight);
    }
  }

  private static Row row(Row key, Object[] results, long weight) {
    int n = key.length();
    Object[] values = new Object[n + results.length + 1];
    for (int i = 0; i < n; i++) {
      values[i] = key.get(i);
    }
    System.arraycopy(results, 0, values, n, results.length);
    values[values.length - 1] = weight;
    return RowFactory.create(values);
  }

  private static scala.collection.Iterator<Row> iterator(List<Row> rows) {
    return scala.jdk.javaapi.CollectionConverters.asScala(rows.iterator());
  }
}
