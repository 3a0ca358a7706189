package dev.penstock.kernel.row;

import java.util.Iterator;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Row;

/** Adds up rows of a task before the shuffle, and can also be given them one by one. */
public interface Adding extends MapPartitionsFunction<Row, Row> {
  /** Rows that are being added up. */
  interface Table {
    void add(Row row);

    /** How many rows would come out now. */
    int size();

    /** Takes out what the rows add up to. */
    Iterator<Row> drain();
  }

  Table table();
}
