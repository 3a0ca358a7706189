package dev.penstock.kernel.hosted;

import dev.penstock.kernel.row.RowCodec;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/**
 * A row on its way to the state of a member: the member's slot, the operator that reads it ({@link Member#OUTPUT}: none; {@link Member#LATE}: the row is a count of late rows), the packed key, and the rest
 * of the packed row.
 */
record Packed(int slot, int operator, byte[] key, byte[] row) {
  /** Its schema in a shuffle: key, reader, row. */
  static final StructType SCHEMA = new StructType()
      .add("key", DataTypes.BinaryType, false)
      .add("reader", DataTypes.LongType, false)
      .add("row", DataTypes.BinaryType, false);

  private static final byte[] NO_KEY = {};

  /** A row that a member emits. */
  static Packed output(int slot, UnsafeRow row) {
    return new Packed(slot, Member.OUTPUT, NO_KEY, RowCodec.copy(row, 0));
  }

  /** A count of late rows of a member. */
  static Packed late(int slot, long rows) {
    return new Packed(slot, Member.LATE, NO_KEY, ByteBuffer.allocate(Long.BYTES).putLong(rows).array());
  }

  /** The number in the row of {@link #late}. */
  static long number(byte[] row) {
    return ByteBuffer.wrap(row).getLong();
  }

  static Packed of(UnsafeRow travelled) {
    long reader = travelled.getLong(1);
    return new Packed((int) (reader >> 32), (int) reader, travelled.getBinary(0), travelled.getBinary(2));
  }

  InternalRow travels() {
    return new GenericInternalRow(new Object[] {key, reader(), row});
  }

  /** Slot and operator. */
  private long reader() {
    return (long) slot << 32 | operator & 0xFFFFFFFFL;
  }

  boolean sameGroup(Packed other) {
    return slot == other.slot && operator == other.operator && Arrays.equals(key, other.key);
  }

  /** The partition of the state that the key belongs to. This mapping must never change, because existing state is not moved. */
  int partition(int partitions) {
    byte[] bytes = operator == Member.OUTPUT ? row : key;
    int hash = Murmur3_x86_32.hashUnsafeBytes(bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length, slot);
    return Math.floorMod(hash, partitions);
  }

  void write(DataOutputStream out) throws IOException {
    out.writeInt(slot);
    out.writeInt(operator);
    out.writeInt(key.length);
    out.write(key);
    out.writeInt(row.length);
    out.write(row);
  }

  /** Number of bytes that {@link #write} writes. */
  int length() {
    return 4 * Integer.BYTES + key.length + row.length;
  }

  static Packed read(DataInputStream in) throws IOException {
    return new Packed(in.readInt(), in.readInt(), in.readNBytes(in.readInt()), in.readNBytes(in.readInt()));
  }
}
