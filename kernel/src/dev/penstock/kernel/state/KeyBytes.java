package dev.penstock.kernel.state;

import dev.penstock.kernel.row.RowCodec;
import java.io.Serializable;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.StructType;

/** The bytes of a grouping key; those of equal keys are equal. */
public interface KeyBytes<K> extends Serializable {
  byte[] of(K key);

  static KeyBytes<Row> rows(StructType schema) {
    return new RowCodec(schema)::bytes;
  }
}
