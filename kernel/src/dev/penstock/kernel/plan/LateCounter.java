package dev.penstock.kernel.plan;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.util.LongAccumulator;

/**
 * Counts late rows: a function that is called only for late rows, with their number, adds it to an accumulator and returns true. An
 * observed metric would cost something for every row; this costs nothing for rows that are not late. A retried task counts twice.
 */
public final class LateCounter implements UDF1<Long, Boolean> {
  private static final long serialVersionUID = 1L;

  private final LongAccumulator rows;

  private LateCounter(LongAccumulator rows) {
    this.rows = rows;
  }

  /** Registers the counter of a job as an SQL function. */
  public static LongAccumulator register(SparkSession spark, String name) {
    LongAccumulator rows = spark.sparkContext().longAccumulator();
    UserDefinedFunction function = functions.udf(new LateCounter(rows), DataTypes.BooleanType).asNondeterministic();
    spark.udf().register(name, function);
    return rows;
  }

  @Override
  public Boolean call(Long count) {
    rows.add(Math.abs(count));
    return true;
  }
}
