package dev.penstock.kernel.state;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.RocksDBDataEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBKeyStateEncoder;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.json4s.JString;
import org.json4s.JValue;

/** State keys that are stored as raw bytes, so that entries are ordered by their keys' bytes. */
final class RawKeys implements KeyStateEncoderSpec, RocksDBKeyStateEncoder, Serializable {
  private static final long serialVersionUID = 1L;
  static final RawKeys INSTANCE = new RawKeys();
  /** Of keys, and of values. */
  static final StructType SCHEMA = new StructType().add("bytes", DataTypes.BinaryType, false);

  private RawKeys() {}

  @Override
  public StructType keySchema() {
    return SCHEMA;
  }

  @Override
  public JValue jsonValue() {
    return new JString(RawKeys.class.getSimpleName());
  }

  @Override
  public RocksDBKeyStateEncoder toEncoder(RocksDBDataEncoder data, boolean useColumnFamilies) {
    return this;
  }

  @Override
  public byte[] encodeKey(UnsafeRow key) {
    return key.getBinary(0);
  }

  @Override
  public UnsafeRow decodeKey(byte[] bytes) {
    return TaskState.row(bytes);
  }

  @Override
  public byte[] encodePrefixKey(UnsafeRow prefix) {
    return prefix.getBinary(0);
  }

  @Override
  public boolean supportPrefixKeyScan() {
    return true;
  }

  @Override
  public boolean supportsDeleteRange() {
    return false;
  }

  @Override
  public boolean supportsRangeScan() {
    return false;
  }
}
