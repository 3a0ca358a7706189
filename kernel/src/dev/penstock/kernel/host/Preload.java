package dev.penstock.kernel.host;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser$;
import org.apache.spark.sql.execution.streaming.state.RocksDBLoader;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/**
 * Loads, on its own thread while Spark's context starts, what the first statement and epoch need: the tables of the SQL parser,
 * RocksDB's library, the compiler of generated code. It only affects speed.
 */
public final class Preload {

  private static final List<Runnable> STEPS = List.of(Preload::parser, Preload::state, Preload::code);

  private Preload() {}

  /** Returns at once. */
  public static void begin() {
    Thread thread = new Thread(() -> STEPS.forEach(Preload::attempt), "penstock-preload");
    thread.setDaemon(true);
    thread.start();
  }

  private static void attempt(Runnable step) {
    try {
      step.run();
    } catch (Exception | LinkageError e) {
      // The first use tries again and reports the error.
    }
  }

  private static void parser() {
    CatalystSqlParser$.MODULE$.parseTableSchema("a BIGINT, b STRING");
    CatalystSqlParser$.MODULE$.parseExpression("sum(a) + CAST(1 AS BIGINT)");
  }

  private static void state() {
    RocksDBLoader.loadLibrary();
  }

  private static void code() {
    UnsafeProjection.create(new DataType[] {DataTypes.LongType, DataTypes.StringType});
  }
}
