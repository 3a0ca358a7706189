package dev.penstock.kernel.log;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.read.InputPartition;

/** The input of one task in an epoch; without slices it is one heartbeat row. */
final class LogPartition implements InputPartition {
  private static final long serialVersionUID = 1L;

  final ArrayList<LogSlice> slices;
  final long wmAfter;

  LogPartition(List<LogSlice> slices, long wmAfter) {
    this.slices = new ArrayList<>(slices);
    this.wmAfter = wmAfter;
  }
}
