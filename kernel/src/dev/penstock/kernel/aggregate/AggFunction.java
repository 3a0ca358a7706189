package dev.penstock.kernel.aggregate;

import com.fasterxml.jackson.databind.JsonNode;
import dev.penstock.kernel.error.ErrorText;
import dev.penstock.kernel.error.GroupErrors;
import dev.penstock.kernel.row.Input;
import dev.penstock.kernel.row.Wire;
import dev.penstock.kernel.row.Zero;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/**
 * One aggregate call of an operator: its arguments, its accumulator and its result type.
 *
 * <p>{@link #create} returns a self-contained accumulator. It always represents the change of an epoch, and
 * also the state if groups are small (sessions) or the result is as large as the group (ARRAY_AGG). {@link
 * #kept} is the form for a long-lived group, if there is one. Results are Spark's own, with three refinements: ties
 * of MODE go to the smallest value, COLLECT_SET is sorted, and APPROX_ functions are exact.
 */
public final class AggFunction implements Serializable {
  private static final long serialVersionUID = 1L;

  final String name;
  /** The SQL type of the result. */
  final DataType type;
  private final int[] at;
  private final Accumulator.Factory factory;
  private final Kept kept;
  /** The user-visible call if an overflow of its value is reported; null: it cannot overflow, or an overflow fails the query. */
  private final String fails;
  /** True if the result depends on the order of arrival. */
  final boolean arrival;

  private AggFunction(String name, DataType type, int[] at, Accumulator.Factory factory, Kept kept, boolean arrival,
      String fails) {
    this.name = name;
    this.type = type;
    this.at = at;
    this.factory = factory;
    this.kept = kept;
    this.arrival = arrival;
    this.fails = fails;
  }

  private static AggFunction of(AggregateCall call) {
    Accumulator.Factory factory = call.factory();
    return new AggFunction(call.name(), call.type(), call.ordinals(), factory, call.kept(), call.arrival(), call.fails());
  }

  public Accumulator create() {
    return factory.create();
  }

  /** The form that keeps its values in the state store, or null. */
  Kept kept() {
    return kept;
  }

  /** The arguments of a row, in a new array. */
  public Object[] arguments(Row row) {
    Object[] args = new Object[at.length];
    for (int i = 0; i < at.length; i++) {
      args[i] = row.get(at[i]);
    }
    return args;
  }

  /** The result of an accumulator in its wire type; {@link GroupErrors.Failed} if there is none. */
  public Object result(Accumulator acc) {
    if (fails == null) {
      return fit(acc.result(), type);
    }
    try {
      return fit(acc.result(), type);
    } catch (RuntimeException e) {
      if (!(e instanceof ArithmeticException || e instanceof SparkThrowable)) {
        throw e;
      }
      return new GroupErrors.Failed(fails, ErrorText.of(e));
    }
  }

  private static Object fit(Object v, DataType type) {
    if (v instanceof Long n) {
      if (type.equals(DataTypes.IntegerType) || Wire.type(type).equals(DataTypes.IntegerType)) {
        return Math.toIntExact(n);
      } else if (type.equals(DataTypes.ShortType)) {
        return (short) (long) n;
      } else if (type.equals(DataTypes.ByteType)) {
        return (byte) (long) n;
      }
    }
    return Zero.positive(v);
  }

  /** Reads the list {@code aggs} of an operator and requests their columns. */
  public static List<AggFunction> list(JsonNode spec, Input input, boolean appendOnly, boolean ansi) {
    List<AggFunction> out = new ArrayList<>();
    spec.path("aggs").forEach(call -> out.add(of(new AggregateCall(call, input, appendOnly, ansi))));
    return out;
  }
}
