package dev.penstock.kernel.hosted;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/** A row on its way to the state of a member: the member's slot, the packed key, and the rest of the packed row. */
record Packed(int slot, byte[] key, byte[] row) {
  /** As it travels through a shuffle: the key, the slot, the row. */
  static final StructType SCHEMA = new StructType()
      .add("key", DataTypes.BinaryType, false)
      .add("slot", DataTypes.IntegerType, false)
      .add("row", DataTypes.BinaryType, false);

  static Packed of(UnsafeRow travelled) {
    return new Packed(travelled.getInt(1), travelled.getBinary(0), travelled.getBinary(2));
  }

  /** The partition of the state that the key belongs to. It must never become another: state stays where it is. */
  int partition(int partitions) {
    return Math.floorMod(Murmur3_x86_32.hashUnsafeBytes(key, Platform.BYTE_ARRAY_OFFSET, key.length, slot), partitions);
  }

  void write(DataOutputStream out) throws IOException {
    out.writeInt(slot);
    out.writeInt(key.length);
    out.write(key);
    out.writeInt(row.length);
    out.write(row);
  }

  static Packed read(DataInputStream in) throws IOException {
    return new Packed(in.readInt(), in.readNBytes(in.readInt()), in.readNBytes(in.readInt()));
  }
}
