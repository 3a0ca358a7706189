package dev.penstock.kernel.hosted;

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.UnsafeExternalRowSorter;
import org.apache.spark.unsafe.types.ByteArray;
import org.apache.spark.util.collection.unsafe.sort.PrefixComparators;
import org.apache.spark.util.collection.unsafe.sort.RecordComparator;

/** The rows of a task by slot and key. */
interface Groups {
  /** Takes the rows of one group, as many as it wants, in the order in which they came. */
  interface Reader {
    void read(int slot, byte[] key, Iterator<byte[]> rows) throws IOException;
  }

  void each(Reader reader) throws IOException;

  /** Few rows, in memory: those that {@link Packed#write} has written. */
  static Groups few(byte[] rows) {
    record Key(int slot, ByteBuffer bytes) {}

    return reader -> {
      Map<Key, List<byte[]>> groups = new LinkedHashMap<>();
      DataInputStream in = new DataInputStream(new ByteArrayInputStream(rows));
      while (in.available() > 0) {
        Packed one = Packed.read(in);
        groups.computeIfAbsent(new Key(one.slot(), ByteBuffer.wrap(one.key())), key -> new ArrayList<>()).add(one.row());
      }
      for (Map.Entry<Key, List<byte[]>> group : groups.entrySet()) {
        reader.read(group.getKey().slot, group.getKey().bytes.array(), group.getValue().iterator());
      }
    };
  }

  /** Any number of rows of {@link Packed#SCHEMA}, each of which is gone when the next one is asked for. They are sorted, on disk if need be. */
  static Groups many(scala.collection.Iterator<InternalRow> rows) {
    return reader -> {
      // Keys begin with a hash, so their first bytes tell most of them apart.
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
            return next[0] != null && next[0].slot() == first.slot() && Arrays.equals(next[0].key(), first.key());
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
        reader.read(first.slot(), first.key(), group);
        while (group.hasNext()) {
          group.next();
        }
      }
    };
  }

  /** By key, then by slot. */
  final class Order extends RecordComparator {
    private final UnsafeRow left = new UnsafeRow(Packed.SCHEMA.size());
    private final UnsafeRow right = new UnsafeRow(Packed.SCHEMA.size());

    @Override
    public int compare(
        Object leftBase, long leftOffset, int leftLength, Object rightBase, long rightOffset, int rightLength) {
      left.pointTo(leftBase, leftOffset, leftLength);
      right.pointTo(rightBase, rightOffset, rightLength);
      int order = Arrays.compareUnsigned(left.getBinary(0), right.getBinary(0));
      return order != 0 ? order : Integer.compare(left.getInt(1), right.getInt(1));
    }
  }

  /** The first bytes of keys. */
  final class Prefixes extends UnsafeExternalRowSorter.PrefixComputer {
    private final Prefix prefix = new Prefix();

    @Override
    public Prefix computePrefix(InternalRow row) {
      prefix.value = ByteArray.getPrefix(row.getBinary(0));
      return prefix;
    }
  }
}
