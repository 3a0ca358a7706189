package dev.penstock.kernel.join;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.array.ByteArrayMethods;
import scala.collection.AbstractIterator;

/**
 * The rows of a task that have the same key, as one row: what travels, is sorted and is decoded by Spark is then a row for each key of a task, not for
 * each of its rows.
 *
 * <p>A row of {@link JoinPlan#INPUT} without its key is a byte with its side and what of it is there, its time, its sequence, its count unless that is one, its moment if it
 * has one, and its bytes behind their length.
 */
final class Bundle {
  static final StructType SCHEMA = new StructType()
      .add("__key", DataTypes.BinaryType, false)
      .add("__rows", DataTypes.BinaryType, false);

  private static final int SIDE = 3;
  private static final int NO_TIME = 4;
  private static final int COUNTED = 8;
  private static final int HAS_LSN = 16;
  private static final int HAS_BEFORE = 32;
  private static final int LARGEST_HEAD = 1 + 5 * Long.BYTES + Integer.BYTES;

  private static final int START = Platform.BYTE_ARRAY_OFFSET;
  /** So many bytes are collected in a task before they travel. */
  private static final int MOST_BYTES = 8 << 20;
  private static final int BUCKETS = 1 << 12;

  private Bundle() {}

  /** The rows of one key. */
  private static final class Rows {
    final byte[] key;
    final long hash;
    byte[] bytes = new byte[128];
    int size;
    Rows next;

    Rows(byte[] key, long hash) {
      this.key = key;
      this.hash = hash;
    }

    void room(int more) {
      if (size + more > bytes.length) {
        bytes = java.util.Arrays.copyOf(bytes, Math.max(size + more, 2 * bytes.length));
      }
    }

    void put(byte value) {
      bytes[size++] = value;
    }

    void put(long value) {
      Platform.putLong(bytes, START + size, value);
      size += Long.BYTES;
    }
  }

  /** The bundles of a task's rows. */
  static Iterator<InternalRow> all(Iterator<InternalRow> rows) {
    return new Iterator<>() {
      private final UnsafeRowWriter writer = new UnsafeRowWriter(SCHEMA.size());
      private Iterator<Rows> full = List.<Rows>of().iterator();

      @Override
      public boolean hasNext() {
        if (!full.hasNext() && rows.hasNext()) {
          full = collect(rows).iterator();
        }
        return full.hasNext();
      }

      @Override
      public InternalRow next() {
        hasNext();
        Rows one = full.next();
        writer.reset();
        writer.write(0, one.key);
        writer.write(1, one.bytes, 0, one.size);
        return writer.getRow();
      }
    };
  }

  /** As many rows as there is room for, by key. */
  private static List<Rows> collect(Iterator<InternalRow> rows) {
    List<Rows> all = new ArrayList<>();
    Rows[] buckets = new Rows[BUCKETS];
    long bytes = 0;
    while (bytes < MOST_BYTES && rows.hasNext()) {
      UnsafeRow row = (UnsafeRow) rows.next();
      Object base = row.getBaseObject();
      long place = row.getLong(JoinPlan.KEY);
      long at = row.getBaseOffset() + (place >>> 32);
      int length = (int) place;
      long hash = XXH64.hashUnsafeBytes(base, at, length, 0);
      int bucket = (int) hash & (buckets.length - 1);
      Rows own = buckets[bucket];
      while (own != null && (own.hash != hash || own.key.length != length
          || !ByteArrayMethods.arrayEquals(base, at, own.key, START, length))) {
        own = own.next;
      }
      if (own == null) {
        own = new Rows(row.getBinary(JoinPlan.KEY), hash);
        all.add(own);
        if (all.size() > buckets.length) {
          buckets = spread(all, 4 * buckets.length);
        } else {
          own.next = buckets[bucket];
          buckets[bucket] = own;
        }
        bytes += length;
      }
      int before = own.size;
      add(own, row);
      bytes += own.size - before;
    }
    return all;
  }

  private static Rows[] spread(List<Rows> all, int count) {
    Rows[] buckets = new Rows[count];
    for (Rows one : all) {
      int bucket = (int) one.hash & (count - 1);
      one.next = buckets[bucket];
      buckets[bucket] = one;
    }
    return buckets;
  }

  private static void add(Rows own, UnsafeRow row) {
    long place = row.getLong(JoinPlan.ROW);
    int length = (int) place;
    own.room(LARGEST_HEAD + length);
    boolean timed = !row.isNullAt(JoinPlan.TIME);
    long count = row.getLong(JoinPlan.WEIGHT);
    boolean moments = row.numFields() > JoinPlan.LSN;
    boolean lsn = moments && !row.isNullAt(JoinPlan.LSN);
    boolean before = moments && !row.isNullAt(JoinPlan.BEFORE);
    own.put((byte) (row.getInt(JoinPlan.SIDE) | (timed ? 0 : NO_TIME) | (count == 1 ? 0 : COUNTED) | (lsn ? HAS_LSN : 0)
        | (before ? HAS_BEFORE : 0)));
    if (timed) {
      own.put(row.getLong(JoinPlan.TIME));
    }
    own.put(row.getLong(JoinPlan.SEQUENCE));
    if (count != 1) {
      own.put(count);
    }
    if (lsn) {
      own.put(row.getLong(JoinPlan.LSN));
    }
    if (before) {
      own.put(row.getLong(JoinPlan.BEFORE));
    }
    Platform.putInt(own.bytes, START + own.size, length);
    own.size += Integer.BYTES;
    Platform.copyMemory(row.getBaseObject(), row.getBaseOffset() + (place >>> 32), own.bytes, START + own.size, length);
    own.size += length;
  }

  /** The rows of bundles, as a processor gets them. */
  static scala.collection.Iterator<Row> rows(byte[] key, scala.collection.Iterator<Row> bundles, boolean moments) {
    return new AbstractIterator<>() {
      private byte[] bytes = {};
      private int at;

      @Override
      public boolean hasNext() {
        while (at >= bytes.length && bundles.hasNext()) {
          bytes = (byte[]) bundles.next().get(1);
          at = 0;
        }
        return at < bytes.length;
      }

      private long number() {
        at += Long.BYTES;
        return Platform.getLong(bytes, START + at - Long.BYTES);
      }

      @Override
      public Row next() {
        if (!hasNext()) {
          throw new java.util.NoSuchElementException();
        }
        int flags = bytes[at++];
        Long time = (flags & NO_TIME) != 0 ? null : Long.valueOf(number());
        long sequence = number();
        long count = (flags & COUNTED) != 0 ? number() : 1;
        Long lsn = (flags & HAS_LSN) != 0 ? Long.valueOf(number()) : null;
        Long before = (flags & HAS_BEFORE) != 0 ? Long.valueOf(number()) : null;
        int length = Platform.getInt(bytes, START + at);
        at += Integer.BYTES;
        byte[] row = java.util.Arrays.copyOfRange(bytes, at, at + length);
        at += length;
        int side = flags & SIDE;
        return moments
            ? RowFactory.create(key, side, time, sequence, count, row, lsn, before)
            : RowFactory.create(key, side, time, sequence, count, row);
      }
    };
  }
}
