package dev.penstock.kernel.state;

import dev.penstock.kernel.row.PhysicalRow;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import java.util.TreeMap;
import org.apache.spark.api.java.function.FlatMapGroupsFunction;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Runs a processor over groups that are complete in one epoch and never change again, such as the rows of a closed
 * window, or all rows of a one-shot query. Its state lives in memory and is discarded after each group.
 *
 * <p>Such a processor retracts nothing. A row of weight n is emitted n times, with weight 1.
 */
public final class AtOnce<G> implements FlatMapGroupsFunction<G, Row, Row> {
  private static final long serialVersionUID = 1L;

  private final StatefulProcessor<G, Row, Row> processor;
  private transient Memory memory;

  /** The weight must be the last column of the processor's rows. */
  public AtOnce(StatefulProcessor<G, Row, Row> processor) {
    this.processor = processor;
  }

  /** This as a stateless processor. */
  StatefulProcessor<G, Row, Row> alone() {
    return new Alone<>(this);
  }

  private static final class Alone<G> extends StatefulProcessor<G, Row, Row> {
    private static final long serialVersionUID = 1L;
    private final AtOnce<G> groups;

    Alone(AtOnce<G> groups) {
      this.groups = groups;
    }

    @Override
    public void init(OutputMode outputMode, TimeMode timeMode) {}

    @Override
    public scala.collection.Iterator<Row> handleInputRows(
        G key, scala.collection.Iterator<Row> rows, TimerValues timers) {
      return CollectionConverters.asScala(groups.call(key, CollectionConverters.asJava(rows)));
    }
  }

  @Override
  public Iterator<Row> call(G key, Iterator<Row> rows) {
    if (memory == null) {
      memory = new Memory();
      processor.setHandle(memory);
      processor.init(OutputMode.Append(), TimeMode.None());
    }
    memory.variables.forEach(Forgetful::forget);
    List<Row> out = new ArrayList<>();
    scala.collection.Iterator<Row> results = processor.handleInputRows(key, CollectionConverters.asScala(rows), null);
    while (results.hasNext()) {
      Row row = results.next();
      int last = row.length() - 1;
      long weight = row.getLong(last);
      if (weight < 0) {
        throw new IllegalStateException("a row is retracted from a group that is complete in one epoch");
      }
      Row one = weight == 1 ? row : PhysicalRow.weighted(row, last, 1);
      for (long i = 0; i < weight; i++) {
        out.add(one);
      }
    }
    return out.iterator();
  }

  private interface Forgetful {
    void forget();
  }

  /** A handle whose state is that of one group, in memory. */
  private static final class Memory extends Handle {
    private static final long serialVersionUID = 1L;
    final List<Forgetful> variables = new ArrayList<>();

    private <T extends Forgetful> T known(T variable) {
      variables.add(variable);
      return variable;
    }

    @Override
    public <T> ValueState<T> getValueState(String name, Encoder<T> encoder, TTLConfig ttl) {
      return known(new Value<>());
    }

    @Override
    @SuppressWarnings("unchecked")
    public <K, V> MapState<K, V> getMapState(String name, Encoder<K> keys, Encoder<V> values, TTLConfig ttl) {
      boolean binary = keys.clsTag().runtimeClass() == byte[].class;
      // In the byte order of the keys, like the state store.
      Comparator<K> order = binary ? (a, b) -> Arrays.compareUnsigned((byte[]) a, (byte[]) b) : null;
      return known(new Mapped<K, V>(order));
    }

    @Override
    public void registerTimer(long time) {
      throw new UnsupportedOperationException("a group that is complete in one epoch has no timers");
    }

    @Override
    public void deleteTimer(long time) {
      registerTimer(time);
    }

    @Override
    public scala.collection.Iterator<Object> listTimers() {
      return scala.collection.Iterator$.MODULE$.empty();
    }
  }

  private static final class Value<T> implements ValueState<T>, Forgetful {
    private static final long serialVersionUID = 1L;
    private T value;

    @Override
    public boolean exists() {
      return value != null;
    }

    @Override
    public T get() {
      return value;
    }

    @Override
    public void update(T newValue) {
      value = newValue;
    }

    @Override
    public void clear() {
      value = null;
    }

    @Override
    public void forget() {
      value = null;
    }
  }

  private static final class Mapped<K, V> implements MapState<K, V>, Forgetful {
    private static final long serialVersionUID = 1L;
    private final TreeMap<K, V> entries;

    Mapped(Comparator<K> order) {
      entries = new TreeMap<>(order);
    }

    @Override
    public boolean exists() {
      return !entries.isEmpty();
    }

    @Override
    public V getValue(K key) {
      return entries.get(key);
    }

    @Override
    public boolean containsKey(K key) {
      return entries.containsKey(key);
    }

    @Override
    public void updateValue(K key, V value) {
      entries.put(key, value);
    }

    @Override
    public scala.collection.Iterator<Tuple2<K, V>> iterator() {
      List<Tuple2<K, V>> all = new ArrayList<>(entries.size());
      entries.forEach((k, v) -> all.add(new Tuple2<>(k, v)));
      return CollectionConverters.asScala(all.iterator());
    }

    @Override
    public scala.collection.Iterator<K> keys() {
      return CollectionConverters.asScala(new ArrayList<>(entries.keySet()).iterator());
    }

    @Override
    public scala.collection.Iterator<V> values() {
      return CollectionConverters.asScala(new ArrayList<>(entries.values()).iterator());
    }

    @Override
    public void removeKey(K key) {
      entries.remove(key);
    }

    @Override
    public void clear() {
      entries.clear();
    }

    @Override
    public void forget() {
      entries.clear();
    }
  }
}
