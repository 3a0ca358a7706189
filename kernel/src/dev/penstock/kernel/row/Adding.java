package dev.penstock.kernel.row;

import java.util.Iterator;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;

/** Combines rows of a task before the shuffle; also accepts them one by one. */
public interface Adding extends MapPartitionsFunction<Row, Row> {
  /** Rows that are being combined. */
  interface Table {
    void add(Row row);

    /** Adds a row in Spark's internal form, which is only valid during the call; {@code codec}: for its schema. */
    default void add(InternalRow row, RowCodec codec) {
      add(codec.row(row));
    }

    /** The number of rows in memory, or an equivalent. */
    int size();

    /** Removes and returns the combined rows. */
    Iterator<Row> drain();
  }

  Table table();
}
