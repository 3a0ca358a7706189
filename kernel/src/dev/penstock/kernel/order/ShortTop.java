package dev.penstock.kernel.order;

import dev.penstock.kernel.state.StateBytes;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A {@link TopN} of few positions over append-only rows: no row after the last position can ever move up, so each
 * partition is one small value of the state store, with one read and one write per epoch. Most queries for "the last row of each
 * key" are of this kind, with very many partitions.
 */
final class ShortTop extends StatefulProcessor<Row, Row, Row> {
  private static final long serialVersionUID = 1L;

  /** The largest number of rows that is worth rewriting when one changes. */
  static final int MOST = 64;

  private final TopN.Head head;
  private transient ValueState<byte[]> state;
  private transient StateBytes.Out out;

  ShortTop(TopN.Head head) {
    this.head = head;
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    state = getHandle().getValueState("head", Encoders.BINARY(), TTLConfig.NONE());
    out = new StateBytes.Out();
  }

  @Override
  public scala.collection.Iterator<Row> handleInputRows(
      Row group, scala.collection.Iterator<Row> input, TimerValues timers) {
    TreeMap<byte[], Long> before = read(state.get());
    TreeMap<byte[], Long> now = new TreeMap<>(before);
    long total = 0;
    for (long n : before.values()) {
      total += n;
    }
    boolean changed = false;
    while (input.hasNext()) {
      Row r = input.next();
      byte[] key = TopN.selected(r);
      if (total >= head.end && Arrays.compareUnsigned(now.lastKey(), key) <= 0) {
        continue;
      }
      long n = TopN.weight(r);
      now.merge(key, n, Long::sum);
      total += n;
      changed = true;
      while (total > head.end) {
        Map.Entry<byte[], Long> last = now.lastEntry();
        long less = Math.min(last.getValue(), total - head.end);
        total -= less;
        if (less == last.getValue()) {
          now.pollLastEntry();
        } else {
          now.put(last.getKey(), last.getValue() - less);
        }
      }
    }
    if (!changed) {
      return CollectionConverters.asScala(Collections.<Row>emptyIterator());
    }
    state.update(write(now));
    List<Row> rows = head.func == null ? difference(placed(before), placed(now)) : moved(before, now);
    return CollectionConverters.asScala(rows.iterator());
  }

  /** The multiplicity of each row in the output. */
  private TreeMap<byte[], Long> placed(TreeMap<byte[], Long> kept) {
    if (head.offset == 0) {
      return kept;
    }
    TreeMap<byte[], Long> in = new TreeMap<>(kept.comparator());
    long position = 0;
    for (Map.Entry<byte[], Long> e : kept.entrySet()) {
      long shown = position + e.getValue() - Math.max(position, head.offset);
      if (shown > 0) {
        in.put(e.getKey(), shown);
      }
      position += e.getValue();
    }
    return in;
  }

  private List<Row> difference(TreeMap<byte[], Long> before, TreeMap<byte[], Long> now) {
    List<Row> rows = new ArrayList<>(4);
    before.forEach((key, n) -> {
      long less = n - now.getOrDefault(key, 0L);
      if (less > 0) {
        rows.add(head.result(head.order.values(key), 0, -less));
      }
    });
    now.forEach((key, n) -> {
      long more = n - before.getOrDefault(key, 0L);
      if (more > 0) {
        rows.add(head.result(head.order.values(key), 0, more));
      }
    });
    return rows;
  }

  /** The changes with row_number, where every position is a row of its own. */
  private List<Row> moved(TreeMap<byte[], Long> before, TreeMap<byte[], Long> now) {
    List<Row> rows = new ArrayList<>();
    List<Row> asserted = new ArrayList<>();
    Iterator<byte[]> was = positions(before);
    Iterator<byte[]> is = positions(now);
    for (long place = 1; was.hasNext() || is.hasNext(); place++) {
      byte[] old = was.hasNext() ? was.next() : null;
      byte[] fresh = is.hasNext() ? is.next() : null;
      if (place <= head.offset || Arrays.equals(old, fresh)) {
        continue;
      }
      if (old != null) {
        rows.add(head.result(head.order.values(old), place, -1));
      }
      if (fresh != null) {
        asserted.add(head.result(head.order.values(fresh), place, 1));
      }
    }
    rows.addAll(asserted);
    return rows;
  }

  private static Iterator<byte[]> positions(TreeMap<byte[], Long> kept) {
    List<byte[]> keys = new ArrayList<>();
    kept.forEach((key, n) -> keys.addAll(Collections.nCopies(Math.toIntExact(n), key)));
    return keys.iterator();
  }

  private byte[] write(TreeMap<byte[], Long> kept) {
    out.reset();
    out.varint(kept.size());
    kept.forEach((key, n) -> {
      out.blob(key);
      out.varint(n);
    });
    return out.toByteArray();
  }

  private static TreeMap<byte[], Long> read(byte[] bytes) {
    TreeMap<byte[], Long> kept = new TreeMap<>(Arrays::compareUnsigned);
    if (bytes != null) {
      StateBytes.In in = new StateBytes.In(bytes);
      for (long left = in.varint(); left > 0; left--) {
        kept.put(in.blob(), in.varint());
      }
    }
    return kept;
  }
}
