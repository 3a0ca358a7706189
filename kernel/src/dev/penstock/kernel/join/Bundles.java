package dev.penstock.kernel.join;

import dev.penstock.kernel.row.Pack;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.array.ByteArrayMethods;

/**
 * Collects the rows of a task into {@link Bundle}s: {@link #add} for each row; when {@link #full}, and after the last row, {@link #next} for each bundle. Called by the code that Spark
 * generates for {@link BundleExec}, and in shared jobs by {@link Bundling}.
 */
public final class Bundles {
  private static final int START = Platform.BYTE_ARRAY_OFFSET;
  private static final int LARGEST_HEAD = 1 + 5 * Long.BYTES + Integer.BYTES;
  /** Bundles are emitted at this size. */
  private static final int MOST_BYTES = 8 << 20;
  private static final int BUCKETS = 1 << 12;

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

    boolean has(Object base, long at, int length) {
      return key.length == length && ByteArrayMethods.arrayEquals(key, START, base, at, length);
    }

    void room(int more) {
      if (size + more > bytes.length) {
        bytes = Arrays.copyOf(bytes, Math.max(size + more, 2 * bytes.length));
      }
    }

    void put(long value) {
      Platform.putLong(bytes, START + size, value);
      size += Long.BYTES;
    }
  }

  private final List<Rows> all = new ArrayList<>();
  private Rows[] buckets = new Rows[BUCKETS];
  private long bytes;
  private int read;

  /** Adds a row; {@code noTime}, {@code noLsn} and {@code noBefore} say which numbers are NULL. */
  public void add(
      byte[] key, int side, boolean noTime, long time, long sequence, long count, byte[] row, boolean noLsn, long lsn,
      boolean noBefore, long before) {
    put(
        of(key, START, key.length, side), side, noTime, time, sequence, count, row, START, row.length, noLsn, lsn, noBefore,
        before);
  }

  /** Adds a row of {@link JoinPlan#INPUT}, with a moment or without. */
  void add(UnsafeRow row) {
    boolean moments = row.numFields() > JoinPlan.LSN;
    boolean noTime = row.isNullAt(JoinPlan.TIME);
    boolean noLsn = !moments || row.isNullAt(JoinPlan.LSN);
    boolean noBefore = !moments || row.isNullAt(JoinPlan.BEFORE);
    int side = row.getInt(JoinPlan.SIDE);
    // The field of a binary column is its offset in the row (upper 32 bits) and its length (lower 32 bits).
    Object base = row.getBaseObject();
    long key = row.getLong(JoinPlan.KEY);
    long packed = row.getLong(JoinPlan.ROW);
    put(
        of(base, row.getBaseOffset() + (key >> 32), (int) key, side), side, noTime,
        noTime ? 0 : row.getLong(JoinPlan.TIME), row.getLong(JoinPlan.SEQUENCE), row.getLong(JoinPlan.WEIGHT), base,
        row.getBaseOffset() + (packed >> 32), (int) packed, noLsn, noLsn ? 0 : row.getLong(JoinPlan.LSN), noBefore,
        noBefore ? 0 : row.getLong(JoinPlan.BEFORE));
  }

  private void put(
      Rows own, int side, boolean noTime, long time, long sequence, long count, Object base, long at, int length,
      boolean noLsn, long lsn, boolean noBefore, long before) {
    int was = own.size;
    own.room(LARGEST_HEAD + length);
    own.bytes[own.size++] = (byte) (side | (noTime ? Bundle.NO_TIME : 0) | (count == 1 ? 0 : Bundle.COUNTED)
        | (noLsn ? 0 : Bundle.HAS_LSN) | (noBefore ? 0 : Bundle.HAS_BEFORE));
    if (!noTime) {
      own.put(time);
    }
    own.put(sequence);
    if (count != 1) {
      own.put(count);
    }
    if (!noLsn) {
      own.put(lsn);
    }
    if (!noBefore) {
      own.put(before);
    }
    Platform.putInt(own.bytes, START + own.size, length);
    own.size += Integer.BYTES;
    Platform.copyMemory(base, at, own.bytes, START + own.size, length);
    own.size += length;
    bytes += own.size - was;
  }

  /** Whether to emit the bundles before adding another row. */
  public boolean full() {
    return bytes >= MOST_BYTES;
  }

  /** The size of the collected rows. */
  long bytes() {
    return bytes;
  }

  /** Moves to the next bundle. After the last one it returns false, and everything is empty again. */
  public boolean next() {
    if (read < all.size()) {
      read++;
      return true;
    }
    if (read > 0) {
      all.clear();
      Arrays.fill(buckets, null);
      bytes = 0;
      read = 0;
    }
    return false;
  }

  /** The key of the bundle. */
  public byte[] key() {
    return all.get(read - 1).key;
  }

  /** The rows of the bundle. */
  public byte[] rows() {
    Rows one = all.get(read - 1);
    return one.size == one.bytes.length ? one.bytes : Arrays.copyOf(one.bytes, one.size);
  }

  private Rows of(Object base, long at, int length, int side) {
    // The key of a row that can match begins with a hash of itself.
    boolean hashed = side <= JoinPlan.RIGHT && length >= Long.BYTES;
    long hash = hashed ? Platform.getLong(base, at) : Pack.hash(base, at, length);
    int bucket = (int) hash & (buckets.length - 1);
    Rows own = buckets[bucket];
    while (own != null && (own.hash != hash || !own.has(base, at, length))) {
      own = own.next;
    }
    if (own != null) {
      return own;
    }
    byte[] key = new byte[length];
    Platform.copyMemory(base, at, key, START, length);
    own = new Rows(key, hash);
    all.add(own);
    bytes += length;
    if (all.size() > buckets.length) {
      spread(4 * buckets.length);
    } else {
      own.next = buckets[bucket];
      buckets[bucket] = own;
    }
    return own;
  }

  private void spread(int count) {
    buckets = new Rows[count];
    for (Rows one : all) {
      int bucket = (int) one.hash & (count - 1);
      one.next = buckets[bucket];
      buckets[bucket] = one;
    }
  }
}
