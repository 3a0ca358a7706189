package dev.penstock.kernel.aggregate;

import java.util.Arrays;
import java.util.Locale;
import java.util.function.Function;
import org.apache.spark.sql.types.DataTypes;

/**
 * The aggregate functions of the kernel, by their canonical names. Python has a record for each ({@code penstock.plan.functions.aggregates});
 * a test compares both.
 */
enum AggregateName {
  COUNT(c -> c.folded(null, Counting.Count::new)),
  COUNT_IF(c -> c.folded(DataTypes.BooleanType, Counting.Bools::countIf)),
  APPROX_COUNT_DISTINCT(AggregateCall::countDifferent),
  SUM(c -> c.sum(false, false)),
  AVG(c -> c.sum(true, false)),
  TRY_SUM(c -> c.sum(false, true)),
  TRY_AVG(c -> c.sum(true, true)),
  STDDEV_SAMP(c -> c.moments(Moments.Kind.STDDEV_SAMP)),
  STDDEV_POP(c -> c.moments(Moments.Kind.STDDEV_POP)),
  VAR_SAMP(c -> c.moments(Moments.Kind.VAR_SAMP)),
  VAR_POP(c -> c.moments(Moments.Kind.VAR_POP)),
  COVAR_SAMP(c -> c.moments(Moments.Kind.COVAR_SAMP)),
  COVAR_POP(c -> c.moments(Moments.Kind.COVAR_POP)),
  CORR(c -> c.moments(Moments.Kind.CORR)),
  BOOL_AND(c -> c.folded(DataTypes.BooleanType, Counting.Bools::and)),
  BOOL_OR(c -> c.folded(DataTypes.BooleanType, Counting.Bools::or)),
  BIT_AND(c -> c.folded(null, Counting.Bits::and)),
  BIT_OR(c -> c.folded(null, Counting.Bits::or)),
  BIT_XOR(c -> c.folded(null, Counting.Bits::xor)),
  MIN(c -> c.extremum(false)),
  MAX(c -> c.extremum(true)),
  MIN_BY(c -> c.extremum(false)),
  MAX_BY(c -> c.extremum(true)),
  FIRST_VALUE(c -> c.edge(false)),
  LAST_VALUE(c -> c.edge(true)),
  ANY_VALUE(c -> c.edge(false)),
  MODE(c -> c.bag(Bag::mode)),
  COLLECT_SET(c -> c.bag(Bag::set)),
  PERCENTILE(c -> c.percentile(DataTypes.DoubleType, Percentile::between)),
  PERCENTILE_DISC(c -> c.percentile(DataTypes.DoubleType, Percentile::one)),
  PERCENTILE_APPROX(c -> c.percentile(null, Percentile::one)),
  ARRAY_AGG(c -> c.listing(Listing::array)),
  STRING_AGG(c -> c.listing(Listing::joined)),
  /** The rows with the extreme of the last argument; the operator Extremes uses it. */
  ROWS_AT_MIN(c -> c.peers(false)),
  ROWS_AT_MAX(c -> c.peers(true)),
  /** Any function of Spark, over all rows of the group. */
  RECOMPUTED(AggregateCall::recomputed);

  private final Function<AggregateCall, Accumulator.Factory> builder;

  AggregateName(Function<AggregateCall, Accumulator.Factory> builder) {
    this.builder = builder;
  }

  static AggregateName of(String name) {
    return Arrays.stream(values())
        .filter(n -> n.name().toLowerCase(Locale.ROOT).equals(name))
        .findFirst()
        .orElseThrow(() -> new IllegalArgumentException("no aggregate function " + name));
  }

  Accumulator.Factory build(AggregateCall call) {
    return builder.apply(call);
  }
}
