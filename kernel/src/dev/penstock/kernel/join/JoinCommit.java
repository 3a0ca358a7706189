package dev.penstock.kernel.join;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Row;

/** The rows of both sides of a key that came at one moment. */
final class JoinCommit {
  final List<Row> lefts = new ArrayList<>();
  final List<Row> rights = new ArrayList<>();
}
