package dev.penstock.kernel.row;

import java.util.Iterator;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;

/** Adds up rows of a task before the shuffle, and can also be given them one by one. */
public interface Adding extends MapPartitionsFunction<Row, Row> {
  /** Rows that are being added up. */
  interface Table {
    void add(Row row);

    /** Adds a row in Spark's form, which is gone when this returns; {@code codec} is that of its schema. */
    default void add(InternalRow row, RowCodec codec) {
      add(codec.row(row));
    }

    /** How many rows are in memory, or as good as. */
    int size();

    /** Takes out what the rows add up to. */
    Iterator<Row> drain();
  }

  Table table();
}
