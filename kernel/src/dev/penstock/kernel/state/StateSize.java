package dev.penstock.kernel.state;

import java.io.Serializable;
import java.lang.ref.WeakReference;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.util.LongAccumulator;

/**
 * The size of an operator's state: rows and bytes of keys and values, counted at every insertion and removal.
 *
 * <p>RocksDB cannot report it: it counts a value once per write until files are merged, and shares its memory
 * between operators. Here removals are subtracted, so the figures shrink with the
 * data. The size of a replaced value is usually known because it was just read. Timers are not counted, and a retried task
 * counts twice.
 */
public final class StateSize implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final AtomicLong NEXT = new AtomicLong();
  private static final Map<Long, WeakReference<StateSize>> ALL = new ConcurrentHashMap<>();

  /** Receives the changes. */
  interface Counter extends Serializable {
    void add(long rows, long bytes);
  }

  private record Sums(LongAccumulator rows, LongAccumulator bytes) implements Counter {
    @Override
    public void add(long moreRows, long moreBytes) {
      if (moreRows != 0) {
        rows.add(moreRows);
      }
      if (moreBytes != 0) {
        bytes.add(moreBytes);
      }
    }
  }

  private final long id;
  private final Counter counter;
  private transient Object key;
  private transient int keyBytes;
  private transient long turn;

  StateSize(long id, Counter counter) {
    this.id = id;
    this.counter = counter;
  }

  /** Creates the counter of one operator of a query that is being planned. */
  public static StateSize create(SparkSession spark) {
    StateSize size =
        new StateSize(
            NEXT.incrementAndGet(),
            new Sums(spark.sparkContext().longAccumulator(), spark.sparkContext().longAccumulator()));
    ALL.values().removeIf(r -> r.get() == null);
    ALL.put(size.id, new WeakReference<>(size));
    return size;
  }

  public static StateSize of(long id) {
    WeakReference<StateSize> found = ALL.get(id);
    return found == null ? null : found.get();
  }

  public long id() {
    return id;
  }

  /** Rows added minus rows removed since the query was planned. */
  long rowsAdded() {
    return ((Sums) counter).rows.value();
  }

  long bytesAdded() {
    return ((Sums) counter).bytes.value();
  }

  /**
   * Wraps a processor so that it works on {@link RawHandle} state, counted by the counter with this id if there is one, as there is in queries.
   *
   * @param keys the bytes of its grouping keys
   */
  public static <K> StatefulProcessor<K, Row, Row> counted(long id, KeyBytes<K> keys, StatefulProcessor<K, Row, Row> processor) {
    return new Processor<>(of(id), keys, processor);
  }

  void at(Object newKey) {
    key = newKey;
    keyBytes = -1;
    turn++;
  }

  /** Changes with every key that is processed: sizes cached for another key are invalid. */
  long turn() {
    return turn;
  }

  /** The size of the current grouping key. */
  int keyBytes() {
    if (keyBytes < 0) {
      keyBytes = bytes(key);
    }
    return keyBytes;
  }

  void add(long moreRows, long moreBytes) {
    counter.add(moreRows, moreBytes);
  }

  /** The size of a value, close to its size in Spark's row format. */
  static int bytes(Object value) {
    if (value == null) {
      return 0;
    }
    if (value instanceof byte[] array) {
      return array.length;
    }
    if (value instanceof String text) {
      return text.length();
    }
    if (value instanceof Row row) {
      int sum = 0;
      for (int i = 0; i < row.length(); i++) {
        sum += bytes(row.get(i));
      }
      return sum;
    }
    if (value instanceof scala.collection.Iterable<?> many) {
      int sum = 0;
      for (scala.collection.Iterator<?> i = many.iterator(); i.hasNext(); ) {
        sum += bytes(i.next());
      }
      return sum;
    }
    if (value instanceof scala.Tuple2<?, ?> pair) {
      return bytes(pair._1()) + bytes(pair._2());
    }
    return Long.BYTES;
  }

  /** A processor on counted state and, in queries, in true time (see {@link EventTime}). */
  private static final class Processor<K> extends StatefulProcessor<K, Row, Row> {
    private static final long serialVersionUID = 1L;
    private static final Counter NOBODY = (rows, bytes) -> {};
    private final StateSize size;
    private final boolean query;
    private final KeyBytes<K> keys;
    private final StatefulProcessor<K, Row, Row> inner;
    private transient RawHandle raw;
    private transient boolean shifted;

    Processor(StateSize size, KeyBytes<K> keys, StatefulProcessor<K, Row, Row> inner) {
      this.size = size == null ? new StateSize(0, NOBODY) : size;
      this.query = size != null;
      this.keys = keys;
      this.inner = inner;
    }

    @Override
    public void init(OutputMode outputMode, TimeMode timeMode) {
      shifted = query && timeMode.equals(TimeMode.EventTime());
      raw = new RawHandle(getHandle());
      raw.enter(TaskState.of(getHandle()));
      inner.setHandle(new CountedHandle(raw, size, true, shifted ? EventTime.SHIFT : 0));
      inner.init(outputMode, timeMode);
    }

    private void at(K key) {
      raw.at(0, 0, keys.of(key));
      size.at(key);
    }

    @Override
    public scala.collection.Iterator<Row> handleInputRows(
        K key, scala.collection.Iterator<Row> rows, TimerValues timers) {
      at(key);
      return inner.handleInputRows(key, rows, shifted ? new EventTime.Timers(timers) : timers);
    }

    @Override
    public scala.collection.Iterator<Row> handleExpiredTimer(K key, TimerValues timers, ExpiredTimerInfo timer) {
      at(key);
      return shifted
          ? inner.handleExpiredTimer(key, new EventTime.Timers(timers), new EventTime.Fired(timer))
          : inner.handleExpiredTimer(key, timers, timer);
    }

    @Override
    public void close() {
      inner.close();
    }
  }
}
