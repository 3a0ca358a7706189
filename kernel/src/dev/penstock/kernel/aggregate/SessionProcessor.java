package dev.penstock.kernel.aggregate;

import dev.penstock.kernel.error.GroupErrors;
import dev.penstock.kernel.state.Moment;
import dev.penstock.kernel.state.StateBytes;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
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

/** Maintains the open sessions of a {@link Session}; see there for the contract. */
final class SessionProcessor extends StatefulProcessor<Row, Row, Row> {
  private static final long serialVersionUID = 1L;
  private static final long NO_TIMER = Long.MIN_VALUE;

  private final Combiner combiner;
  private final List<AggFunction> functions;
  private final int keyCount;
  private final long gap;
  private final boolean close;
  private final long latenessMs;
  private final boolean punctual;
  private final boolean appendOnly;
  private final boolean passes;
  private final GroupErrors errors;
  private final long boundUnit;
  private transient ValueState<byte[]> state;

  SessionProcessor(
      Combiner combiner,
      List<AggFunction> functions,
      int keyCount,
      long gap,
      boolean close,
      long latenessMs,
      boolean punctual,
      boolean appendOnly,
      boolean passes,
      GroupErrors errors,
      long boundUnit) {
    this.combiner = combiner;
    this.functions = functions;
    this.keyCount = keyCount;
    this.gap = gap;
    this.close = close;
    this.latenessMs = latenessMs;
    this.punctual = punctual;
    this.appendOnly = appendOnly;
    this.passes = passes;
    this.errors = errors;
    this.boundUnit = boundUnit;
  }

  /**
   * Rows from {@code first} to {@code last}: a whole session, or those of one time. {@code sealed} is 0 while the session accepts rows; then it is a number
   * that all spans of the session share, and the session is emitted when the watermark of the query reaches its end.
   */
  private static final class Span {
    final long first;
    long last;
    final Group group;
    long sealed;

    Span(long first, long last, Group group, long sealed) {
      this.first = first;
      this.last = last;
      this.group = group;
      this.sealed = sealed;
    }
  }

  /** The rows of one time in this epoch. */
  private static final class Arrival {
    final List<byte[]> parts = new ArrayList<>();
    final List<Object[]> rows = new ArrayList<>(); // the passed-through row and the row's own part
    Group group;
  }

  /** The state of a key: spans in order of time, and the registered timer. */
  private static final class Open {
    List<Span> spans = new ArrayList<>();
    long timer = NO_TIMER;
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    state = getHandle().getValueState("sessions", Encoders.BINARY(), TTLConfig.NONE());
  }

  @Override
  public scala.collection.Iterator<Row> handleInputRows(
      Row key, scala.collection.Iterator<Row> rows, TimerValues timers) {
    long watermark = timers.getCurrentWatermarkInMs();
    List<Row> out = new ArrayList<>();
    Open open = load();
    TreeMap<Moment, TreeMap<Long, Arrival>> moments = arrivals(rows);
    if (!punctual) {
      closeDue(key, open, watermark, out);
    }
    List<Span> before = close ? List.of() : sessions(open.spans);
    Map<Span, Object[]> old = new IdentityHashMap<>();
    before.forEach(s -> old.put(s, s.group.results()));
    moments.forEach((moment, arrivals) -> {
      if (!punctual) {
        long inForce = Math.max(watermark, moment.watermark());
        seal(open, inForce);
        refuseLate(key, open, arrivals, inForce, out);
      }
      insert(key, open, arrivals, out);
    });
    List<Span> after = sessions(open.spans);
    if (!close) {
      difference(key, before, old, after, out);
    }
    if (appendOnly) {
      open.spans = after;
    }
    if (punctual) {
      closeDue(key, open, watermark, out);
      after = sessions(open.spans);
    }
    save(open, after, watermark);
    return scala.jdk.javaapi.CollectionConverters.asScala(out.iterator());
  }

  @Override
  public scala.collection.Iterator<Row> handleExpiredTimer(Row key, TimerValues timers, ExpiredTimerInfo timer) {
    List<Row> out = new ArrayList<>();
    Open open = load();
    if (open.timer == timer.getExpiryTimeInMs()) {
      open.timer = NO_TIMER; // Spark removes a timer that has fired
    }
    closeDue(key, open, timers.getCurrentWatermarkInMs(), out);
    save(open, sessions(open.spans), timers.getCurrentWatermarkInMs());
    return scala.jdk.javaapi.CollectionConverters.asScala(out.iterator());
  }

  private TreeMap<Moment, TreeMap<Long, Arrival>> arrivals(scala.collection.Iterator<Row> rows) {
    TreeMap<Moment, TreeMap<Long, Arrival>> out = new TreeMap<>();
    while (rows.hasNext()) {
      Row row = rows.next();
      Arrival a = out.computeIfAbsent(Moment.of(row.getAs(keyCount + 1), row.getAs(keyCount + 2)), m -> new TreeMap<>())
          .computeIfAbsent(row.getLong(keyCount), t -> new Arrival());
      byte[] part = row.getAs(keyCount + 3);
      a.parts.add(part);
      if (passes) {
        a.rows.add(new Object[] {row.get(keyCount + 4), part});
      }
    }
    return out;
  }

  /** Seals the sessions that have closed at a watermark, so that they accept no more rows. */
  private void seal(Open open, long watermark) {
    long last = open.spans.stream().mapToLong(s -> s.sealed).max().orElse(0);
    for (Span session : sessions(open.spans)) {
      if (session.sealed == 0 && due(session.last) <= watermark) {
        last++;
        for (Span span : open.spans) {
          if (span.sealed == 0 && span.first >= session.first && span.last <= session.last) {
            span.sealed = last;
          }
        }
      }
    }
  }

  /** Removes late arrivals: those whose session, formed with the open ones, has closed. */
  private void refuseLate(Row key, Open open, TreeMap<Long, Arrival> arrivals, long watermark, List<Row> out) {
    List<Span> all = new ArrayList<>(open.spans);
    all.removeIf(span -> span.sealed != 0);
    arrivals.keySet().forEach(t -> all.add(new Span(t, t, null, 0)));
    all.sort((a, b) -> Long.compare(a.first, b.first));
    int from = 0;
    while (from < all.size()) {
      long last = all.get(from).last;
      int to = from + 1;
      while (to < all.size() && all.get(to).first - last <= gap) {
        last = Math.max(last, all.get(to).last);
        to++;
      }
      if (due(last) <= watermark) {
        for (Span span : all.subList(from, to)) {
          if (span.group == null) {
            late(key, arrivals.remove(span.first), out);
          }
        }
      }
      from = to;
    }
  }

  private void late(Row key, Arrival arrival, List<Row> out) {
    if (!passes) {
      out.add(row(key, null, null, combiner.merge(arrival.parts).weight, null));
      return;
    }
    for (Object[] each : arrival.rows) {
      List<byte[]> one = new ArrayList<>(List.of((byte[]) each[1]));
      out.add(row(key, null, null, combiner.merge(one).weight, each[0]));
    }
  }

  private void insert(Row key, Open open, TreeMap<Long, Arrival> arrivals, List<Row> out) {
    TreeMap<Long, Span> byTime = new TreeMap<>();
    for (Span span : open.spans) {
      if (span.sealed == 0) {
        byTime.put(span.first, span);
      }
    }
    List<Span> added = new ArrayList<>();
    arrivals.forEach((time, arrival) -> {
      arrival.group = combiner.merge(arrival.parts);
      Span there = appendOnly ? null : byTime.get(time);
      if (arrival.group.weight < 0 && (there == null || there.group.weight + arrival.group.weight < 0)) {
        late(key, arrival, out); // the retracted row was removed with its session
      } else if (there != null) {
        there.group.merge(arrival.group);
      } else {
        added.add(new Span(time, time, arrival.group, 0));
      }
    });
    open.spans.addAll(added);
    open.spans.removeIf(s -> s.group.weight == 0);
    open.spans.sort((a, b) -> Long.compare(a.first, b.first));
  }

  /**
   * Merges the spans of each session: those at most the gap apart, and those sealed together. A span that is not merged
   * remains the same object. All times of a sealed session are before those of sessions that started after it was sealed.
   */
  private List<Span> sessions(List<Span> spans) {
    List<Span> out = new ArrayList<>();
    Span current = null;
    boolean own = false;
    for (Span span : spans) {
      if (current != null && current.sealed == span.sealed && (span.sealed != 0 || span.first - current.last <= gap)) {
        if (!own) {
          Group sum = new Group(functions);
          sum.merge(current.group);
          current = new Span(current.first, current.last, sum, current.sealed);
          out.set(out.size() - 1, current);
          own = true;
        }
        current.group.merge(span.group);
        current.last = Math.max(current.last, span.last);
      } else {
        current = span;
        own = false;
        out.add(span);
      }
    }
    return out;
  }

  private void difference(Row key, List<Span> before, Map<Span, Object[]> old, List<Span> after, List<Row> out) {
    TreeMap<Long, Span> now = new TreeMap<>();
    after.forEach(s -> now.put(s.first, s));
    Set<Long> same = new HashSet<>();
    Map<Long, Object[]> results = new HashMap<>();
    after.forEach(s -> results.put(s.first, s.group.results()));
    for (Span was : before) {
      Span is = now.get(was.first);
      if (is != null && is.last == was.last && Arrays.deepEquals(old.get(was), results.get(is.first))) {
        same.add(is.first);
      } else {
        add(key, was, old.get(was), -1, out);
      }
    }
    for (Span is : after) {
      if (!same.contains(is.first)) {
        add(key, is, results.get(is.first), 1, out);
      }
    }
  }

  private void closeDue(Row key, Open open, long watermark, List<Row> out) {
    for (Span session : sessions(open.spans)) {
      if (due(session.last) <= watermark) {
        if (close) {
          add(key, session, session.group.results(), 1, out);
        }
        open.spans.removeIf(s -> s.first >= session.first && s.last <= session.last);
      }
    }
  }

  /** Adds the row of a session, or reports the session if a value cannot be computed. */
  private void add(Row key, Span session, Object[] results, long weight, List<Row> out) {
    long[] bounds = {session.first, session.last + gap};
    GroupErrors.Failed failed = errors == null ? null : GroupErrors.first(results);
    if (failed == null) {
      out.add(row(key, bounds, results, weight, null));
    } else {
      int keys = key.length();
      errors.report(failed, i -> i < keys ? key.get(i) : (Object) (bounds[i - keys] / boundUnit), weight);
    }
  }

  /** The watermark at which a session with this last row closes. */
  private long due(long last) {
    return -Math.floorDiv(-(last + gap), 1000L) + latenessMs;
  }

  private Row row(Row key, long[] bounds, Object[] results, long weight, Object passed) {
    int n = functions.size();
    Object[] values = new Object[keyCount + 2 + n + 1 + (passes ? 1 : 0) + 1];
    if (bounds != null) {
      for (int i = 0; i < keyCount; i++) {
        values[i] = key.get(i);
      }
      values[keyCount] = bounds[0];
      values[keyCount + 1] = bounds[1];
      System.arraycopy(results, 0, values, keyCount + 2, n);
    }
    values[keyCount + 2 + n] = bounds == null;
    if (passes) {
      values[keyCount + 3 + n] = passed;
    }
    values[values.length - 1] = weight;
    return RowFactory.create(values);
  }

  private Open load() {
    Open open = new Open();
    byte[] known = state.get();
    if (known != null) {
      StateBytes.In in = new StateBytes.In(known);
      open.timer = in.varint();
      for (long left = in.varint(); left > 0; left--) {
        long first = in.varint();
        long last = first + in.varint();
        long sealed = in.varint();
        open.spans.add(new Span(first, last, new Group(functions).read(in), sealed));
      }
    }
    return open;
  }

  private void save(Open open, List<Span> sessions, long watermark) {
    long next = sessions.stream().mapToLong(s -> due(s.last)).min().orElse(NO_TIMER);
    if (next != NO_TIMER) {
      next = Math.max(next, watermark); // Spark ignores a timer that the watermark has passed
    }
    if (next != open.timer) {
      if (open.timer != NO_TIMER) {
        getHandle().deleteTimer(open.timer);
      }
      if (next != NO_TIMER) {
        getHandle().registerTimer(next);
      }
    }
    if (open.spans.isEmpty()) {
      state.clear();
      return;
    }
    StateBytes.Out out = new StateBytes.Out();
    out.varint(next);
    out.varint(open.spans.size());
    for (Span span : open.spans) {
      out.varint(span.first);
      out.varint(span.last - span.first);
      out.varint(span.sealed);
      span.group.write(out);
    }
    state.update(out.toByteArray());
  }
}
