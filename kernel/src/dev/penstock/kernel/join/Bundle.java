package dev.penstock.kernel.join;

import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import scala.collection.AbstractIterator;

/**
 * The rows of a task that have the same key, as one row: Spark then shuffles, sorts and decodes one row per key of a task instead of one per row.
 *
 * <p>It encodes a row of {@link JoinPlan#INPUT}, without the key, as a byte with its side and flags, its time if not NULL, its sequence, its count unless that is one, its moment if it
 * has one, and its length and bytes. {@link Bundles} writes this form.
 */
final class Bundle {
  static final StructType SCHEMA = new StructType()
      .add("__key", DataTypes.BinaryType, false)
      .add("__rows", DataTypes.BinaryType, false);

  static final int SIDE = 3;
  static final int NO_TIME = 4;
  static final int COUNTED = 8;
  static final int HAS_LSN = 16;
  static final int HAS_BEFORE = 32;

  private static final int START = Platform.BYTE_ARRAY_OFFSET;

  private Bundle() {}

  /** Unpacks bundles to a processor's input rows. */
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
        long time = (flags & NO_TIME) != 0 ? 0 : number();
        long sequence = number();
        long count = (flags & COUNTED) != 0 ? number() : 1;
        long lsn = (flags & HAS_LSN) != 0 ? number() : 0;
        long before = (flags & HAS_BEFORE) != 0 ? number() : 0;
        int length = Platform.getInt(bytes, START + at);
        at += Integer.BYTES;
        byte[] row = java.util.Arrays.copyOfRange(bytes, at, at + length);
        at += length;
        return new BundledRow(key, flags, time, sequence, count, row, lsn, before, moments);
      }
    };
  }
}
