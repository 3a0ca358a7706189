package dev.penstock.kernel.row;

import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.NoSuchElementException;
import org.apache.spark.sql.Row;

/** Sums the weights of equal rows of a task before the shuffle, within bounded memory; rows that cancel out are not shuffled. */
public abstract class Combining<K> implements Iterator<Row> {
  private static final int ROWS = 1 << 16;

  private final Iterator<Row> source;
  private final int width;
  private Iterator<Map.Entry<K, long[]>> ready = Collections.emptyIterator();

  /** @param width the number of weights of a row */
  protected Combining(Iterator<Row> source, int width) {
    this.source = source;
    this.width = width;
  }

  /** The key by which rows are combined. */
  protected abstract K key(Row row);

  protected abstract void add(Row row, long[] sums);

  protected abstract Row row(K key, long[] sums);

  @Override
  public final boolean hasNext() {
    while (!ready.hasNext() && source.hasNext()) {
      Map<K, long[]> sums = new HashMap<>();
      while (source.hasNext() && sums.size() < ROWS) {
        Row row = source.next();
        add(row, sums.computeIfAbsent(key(row), k -> new long[width]));
      }
      sums.values().removeIf(Combining::zero);
      ready = sums.entrySet().iterator();
    }
    return ready.hasNext();
  }

  private static boolean zero(long[] sums) {
    for (long sum : sums) {
      if (sum != 0) {
        return false;
      }
    }
    return true;
  }

  @Override
  public final Row next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    Map.Entry<K, long[]> e = ready.next();
    return row(e.getKey(), e.getValue());
  }
}
