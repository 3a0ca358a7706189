package dev.penstock.kernel.state;

import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.streaming.ListState;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.QueryInfo;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.ValueState;

/** A handle on state of our own: values and maps, no lists. Spark declares each method with two argument orders; here one calls the other. */
abstract class Handle implements StatefulProcessorHandle {
  private static final long serialVersionUID = 1L;

  @Override
  public final <T> ValueState<T> getValueState(String name, TTLConfig ttl, Encoder<T> encoder) {
    return getValueState(name, encoder, ttl);
  }

  @Override
  public final <K, V> MapState<K, V> getMapState(String name, TTLConfig ttl, Encoder<K> keys, Encoder<V> values) {
    return getMapState(name, keys, values, ttl);
  }

  @Override
  public final <T> ListState<T> getListState(String name, Encoder<T> encoder, TTLConfig ttl) {
    throw new UnsupportedOperationException("lists are not kept");
  }

  @Override
  public final <T> ListState<T> getListState(String name, TTLConfig ttl, Encoder<T> encoder) {
    return getListState(name, encoder, ttl);
  }

  @Override
  public final QueryInfo getQueryInfo() {
    throw new UnsupportedOperationException("no query is known here");
  }

  @Override
  public final void deleteIfExists(String name) {
    throw new UnsupportedOperationException("variables are not deleted");
  }
}
