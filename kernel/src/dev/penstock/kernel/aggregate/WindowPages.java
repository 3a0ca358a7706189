package dev.penstock.kernel.aggregate;

import dev.penstock.kernel.error.GroupErrors;
import dev.penstock.kernel.state.CountedHandle;
import dev.penstock.kernel.state.OrderKey;
import dev.penstock.kernel.state.StateBytes;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;

/**
 * Maintains the groups of an {@link Aggregate} in mode close, which are removed with their window.
 *
 * <p>The groups of a window are hashed into {@value #BUCKETS} buckets. Each bucket is a page: one value of the state store with one
 * timer, however many groups it has, because a value and a timer cost more than the work on a group. A page of more than {@value #MOST}
 * groups stores them as entries of a map instead, so a change never rewrites more than a page.
 */
final class WindowPages extends StatefulProcessor<Row, Row, Row> {
  private static final long serialVersionUID = 1L;
  static final int BUCKETS = 256;
  private static final int MOST = 64;

  /** Ordinals in the key of a page. */
  private static final int END = 0;

  private final Combiner combiner;
  private final List<AggFunction> functions;
  private final WindowEnd end;
  private final boolean punctual;
  private final OrderKey others;
  private final int[] at;
  private final GroupErrors errors;
  private transient StatefulProcessorHandle handle;
  private transient ValueState<byte[]> page;
  private transient MapState<byte[], byte[]> spread;
  private transient StateBytes.Out out;

  /**
   * @param others key over the grouping columns other than the window's end
   * @param at their ordinals in the input rows
   * @param punctual no row is late: rows for a window that is due belong to it, and it closes with them
   */
  WindowPages(
      Combiner combiner, List<AggFunction> functions, WindowEnd end, boolean punctual, OrderKey others, int[] at,
      GroupErrors errors) {
    this.combiner = combiner;
    this.functions = functions;
    this.end = end;
    this.punctual = punctual;
    this.others = others;
    this.at = at;
    this.errors = errors;
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    handle = CountedHandle.packed(getHandle());
    page = handle.getValueState("page", Encoders.BINARY(), TTLConfig.NONE());
    spread = handle.getMapState("groups", Encoders.BINARY(), Encoders.BINARY(), TTLConfig.NONE());
    out = new StateBytes.Out();
  }

  @Override
  public scala.collection.Iterator<Row> handleInputRows(
      Row key, scala.collection.Iterator<Row> rows, TimerValues timers) {
    Long due = end.due(key, END);
    boolean over = due != null && due <= timers.getCurrentWatermarkInMs();
    if (over && !punctual) {
      return scala.collection.Iterator$.MODULE$.empty();
    }
    Map<ByteBuffer, List<byte[]>> changes = new LinkedHashMap<>();
    while (rows.hasNext()) {
      Row row = rows.next();
      changes
          .computeIfAbsent(ByteBuffer.wrap(others.bytesAt(row, at)), k -> new ArrayList<>(2))
          .add(row.getAs(row.length() - 1));
    }
    Page kept = new Page();
    boolean was = kept.groups > 0;
    long before = kept.groups;
    List<Row> closed = new ArrayList<>();
    changes.forEach((name, parts) -> {
      Group group = combiner.merge(parts);
      byte[] known = kept.get(name);
      if (known != null) {
        Group sum = new Group(functions).read(new StateBytes.In(known));
        sum.merge(group);
        group = sum;
      }
      if (over && group.weight > 0) {
        close(key, name.array(), group, closed);
      }
      if (over || group.weight == 0) {
        kept.remove(name, known != null);
      } else {
        out.reset();
        group.write(out);
        kept.put(name, out.toByteArray(), known == null);
      }
    });
    kept.write();
    CountedHandle.rows(handle, kept.groups - before);
    if (due != null && was != kept.groups > 0) {
      if (was) {
        handle.deleteTimer(due);
      } else {
        handle.registerTimer(due);
      }
    }
    return scala.jdk.javaapi.CollectionConverters.asScala(closed.iterator());
  }

  @Override
  public scala.collection.Iterator<Row> handleExpiredTimer(Row key, TimerValues timers, ExpiredTimerInfo timer) {
    Page kept = new Page();
    List<Row> closed = new ArrayList<>();
    kept.forEach((name, group) -> {
      Group sum = new Group(functions).read(new StateBytes.In(group));
      if (sum.weight > 0) {
        close(key, name, sum, closed);
      }
    });
    CountedHandle.rows(handle, -kept.groups);
    kept.clear();
    return scala.jdk.javaapi.CollectionConverters.asScala(closed.iterator());
  }

  /** Emits the row of a group, or reports the group if a value cannot be computed. */
  private void close(Row key, byte[] name, Group group, List<Row> closed) {
    Object[] rest = others.decode(name);
    Object[] results = group.results();
    Object[] values = new Object[rest.length + 1 + results.length + 1];
    for (int i = 0; i < rest.length; i++) {
      values[at[i]] = rest[i];
    }
    values[end.at()] = key.get(END);
    System.arraycopy(results, 0, values, rest.length + 1, results.length);
    values[values.length - 1] = 1L;
    GroupErrors.Failed failed = errors == null ? null : GroupErrors.first(results);
    if (failed == null) {
      closed.add(RowFactory.create(values));
    } else {
      errors.report(failed, i -> values[i], 1);
    }
  }

  private interface Visitor {
    void visit(byte[] name, byte[] group);
  }

  /** The page of the current key, with changes. */
  private final class Page {
    /** Null if the groups are in the map. */
    private Map<ByteBuffer, byte[]> entries = new LinkedHashMap<>();
    private final boolean stored;
    private boolean changed;
    long groups;

    Page() {
      byte[] bytes = page.get();
      stored = bytes != null;
      if (bytes == null) {
        return;
      }
      StateBytes.In in = new StateBytes.In(bytes);
      boolean inMap = in.bool();
      groups = in.varint();
      if (inMap) {
        entries = null;
        return;
      }
      for (long left = groups; left > 0; left--) {
        entries.put(ByteBuffer.wrap(in.blob()), in.blob());
      }
    }

    byte[] get(ByteBuffer name) {
      return entries == null ? spread.getValue(name.array()) : entries.get(name);
    }

    void put(ByteBuffer name, byte[] group, boolean fresh) {
      changed = true;
      groups += fresh ? 1 : 0;
      if (entries == null) {
        spread.updateValue(name.array(), group);
        return;
      }
      entries.put(name, group);
      if (entries.size() > MOST) {
        entries.forEach((k, v) -> spread.updateValue(k.array(), v));
        entries = null;
      }
    }

    void remove(ByteBuffer name, boolean there) {
      if (!there) {
        return;
      }
      changed = true;
      groups--;
      if (entries == null) {
        spread.removeKey(name.array());
      } else {
        entries.remove(name);
      }
    }

    void forEach(Visitor visitor) {
      if (entries != null) {
        entries.forEach((k, v) -> visitor.visit(k.array(), v));
        return;
      }
      scala.collection.Iterator<scala.Tuple2<byte[], byte[]>> all = spread.iterator();
      while (all.hasNext()) {
        scala.Tuple2<byte[], byte[]> e = all.next();
        visitor.visit(e._1(), e._2());
      }
    }

    void write() {
      if (groups == 0) {
        clear();
      } else if (changed) {
        out.reset();
        out.bool(entries == null);
        out.varint(groups);
        if (entries != null) {
          entries.forEach((k, v) -> {
            out.blob(k.array());
            out.blob(v);
          });
        }
        page.update(out.toByteArray());
      }
    }

    void clear() {
      if (entries == null) {
        spread.clear();
      }
      if (stored) {
        page.clear();
      }
    }
  }
}
