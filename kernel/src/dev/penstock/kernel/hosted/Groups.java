package dev.penstock.kernel.hosted;

import java.io.DataInputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.UnsafeExternalRowSorter;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.array.ByteArrayMethods;
import org.apache.spark.unsafe.types.ByteArray;
import org.apache.spark.util.collection.unsafe.sort.PrefixComparators;
import org.apache.spark.util.collection.unsafe.sort.RecordComparator;

/** The rows of a task, grouped by member, operator and key. */
interface Groups {
  /** Reads the rows of one group in arrival order; it may stop early. */
  interface Reader {
    void read(int slot, int operator, byte[] key, Iterator<byte[]> rows) throws IOException;
  }

  void each(Reader reader) throws IOException;

  /** Up to this many bytes are grouped in memory. */
  int FEW = 1 << 22;

  /** Groups the rows of some parts. */
  static Groups of(List<Onward.Part> parts) {
    return parts.stream().mapToLong(Onward.Part::length).sum() <= FEW
        ? few(parts)
        : many(scala.jdk.javaapi.CollectionConverters.asScala(travelling(parts)));
  }

  /** Groups few rows, in memory. */
  private static Groups few(List<Onward.Part> parts) {
    record Key(int slot, int operator, ByteBuffer bytes) {}

    return reader -> {
      Map<Key, List<byte[]>> groups = new LinkedHashMap<>();
      for (Iterator<Packed> rows = rows(parts); rows.hasNext(); ) {
        Packed one = rows.next();
        groups
            .computeIfAbsent(new Key(one.slot(), one.operator(), ByteBuffer.wrap(one.key())), key -> new ArrayList<>())
            .add(one.row());
      }
      for (Map.Entry<Key, List<byte[]>> group : groups.entrySet()) {
        Key key = group.getKey();
        reader.read(key.slot, key.operator, key.bytes.array(), group.getValue().iterator());
      }
    };
  }

  private static Iterator<InternalRow> travelling(List<Onward.Part> parts) {
    UnsafeProjection pack = UnsafeProjection.create(Packed.SCHEMA);
    Iterator<Packed> rows = rows(parts);
    return new Iterator<>() {
      @Override
      public boolean hasNext() {
        return rows.hasNext();
      }

      @Override
      public InternalRow next() {
        return pack.apply(rows.next().travels());
      }
    };
  }

  private static Iterator<Packed> rows(List<Onward.Part> parts) {
    Iterator<Onward.Part> each = parts.iterator();
    return new Iterator<>() {
      private DataInputStream in;
      private long left;

      @Override
      public boolean hasNext() {
        try {
          while (left == 0) {
            if (in != null) {
              in.close();
            }
            if (!each.hasNext()) {
              return false;
            }
            Onward.Part part = each.next();
            in = part.open();
            left = part.length();
          }
          return true;
        } catch (IOException e) {
          throw new UncheckedIOException(e);
        }
      }

      @Override
      public Packed next() {
        if (!hasNext()) {
          throw new NoSuchElementException();
        }
        try {
          Packed row = Packed.read(in);
          left -= row.length();
          return row;
        } catch (IOException e) {
          throw new UncheckedIOException(e);
        }
      }
    };
  }

  /** Groups any number of rows of {@link Packed#SCHEMA}, each valid until the next is fetched. It sorts them, on disk if need be. */
  static Groups many(scala.collection.Iterator<InternalRow> rows) {
    return reader -> {
      // Keys begin with a hash, so the prefix distinguishes most of them.
      UnsafeExternalRowSorter sorter = UnsafeExternalRowSorter.createWithRecordComparator(
          Packed.SCHEMA, Order::new, PrefixComparators.BINARY, new Prefixes(),
          SparkEnv.get().memoryManager().pageSizeBytes(), false);
      while (rows.hasNext()) {
        sorter.insertRow((UnsafeRow) rows.next());
      }
      scala.collection.Iterator<InternalRow> sorted = sorter.sort();
      Packed[] next = {sorted.hasNext() ? Packed.of((UnsafeRow) sorted.next()) : null};
      while (next[0] != null) {
        Packed first = next[0];
        Iterator<byte[]> group = new Iterator<>() {
          @Override
          public boolean hasNext() {
            return next[0] != null && next[0].sameGroup(first);
          }

          @Override
          public byte[] next() {
            if (!hasNext()) {
              throw new NoSuchElementException();
            }
            byte[] row = next[0].row();
            next[0] = sorted.hasNext() ? Packed.of((UnsafeRow) sorted.next()) : null;
            return row;
          }
        };
        reader.read(first.slot(), first.operator(), first.key(), group);
        while (group.hasNext()) {
          group.next();
        }
      }
    };
  }

  /** By slot and operator, then by key: the order of the state, so that a member's groups are looked up one after another. */
  final class Order extends RecordComparator {
    private final UnsafeRow left = new UnsafeRow(Packed.SCHEMA.size());
    private final UnsafeRow right = new UnsafeRow(Packed.SCHEMA.size());

    @Override
    public int compare(
        Object leftBase, long leftOffset, int leftLength, Object rightBase, long rightOffset, int rightLength) {
      left.pointTo(leftBase, leftOffset, leftLength);
      right.pointTo(rightBase, rightOffset, rightLength);
      int order = Long.compareUnsigned(left.getLong(1), right.getLong(1));
      if (order != 0) {
        return order;
      }
      // Rows with the same prefix mostly have the same key.
      long a = left.getLong(0);
      long b = right.getLong(0);
      boolean same = (int) a == (int) b
          && ByteArrayMethods.arrayEquals(leftBase, leftOffset + (a >> 32), rightBase, rightOffset + (b >> 32), (int) a);
      return same ? 0 : Arrays.compareUnsigned(left.getBinary(0), right.getBinary(0));
    }
  }

  /** Slot, operator and the first bytes of the key in one number. Slots and operators that do not fit share the highest value, so they sort last. */
  final class Prefixes extends UnsafeExternalRowSorter.PrefixComputer {
    private static final int SLOTS = 0xFFFF;
    private static final int OPERATORS = 0xFF;
    private static final int KEY_BITS = 40;

    private final Prefix prefix = new Prefix();

    @Override
    public Prefix computePrefix(InternalRow row) {
      UnsafeRow packed = (UnsafeRow) row;
      long reader = packed.getLong(1);
      long slot = Math.min(reader >>> 32, SLOTS);
      long operator = slot == SLOTS ? OPERATORS : Math.min(reader & 0xFFFFFFFFL, OPERATORS);
      long key = operator == OPERATORS ? -1 : firstBytes(packed);
      prefix.value = (slot << 8 | operator) << KEY_BITS | key >>> Long.SIZE - KEY_BITS;
      return prefix;
    }

    private static long firstBytes(UnsafeRow packed) {
      long place = packed.getLong(0);
      if ((int) place < Long.BYTES) {
        return ByteArray.getPrefix(packed.getBinary(0));
      }
      long bytes = Platform.getLong(packed.getBaseObject(), packed.getBaseOffset() + (place >> 32));
      return ByteOrder.nativeOrder() == ByteOrder.BIG_ENDIAN ? bytes : Long.reverseBytes(bytes);
    }
  }
}
