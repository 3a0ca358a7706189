package dev.penstock.kernel.aggregate;

import com.fasterxml.jackson.databind.JsonNode;
import dev.penstock.kernel.error.ErrorText;
import dev.penstock.kernel.error.GroupErrors;
import dev.penstock.kernel.row.Input;
import dev.penstock.kernel.row.Wire;
import dev.penstock.kernel.row.Zero;
import dev.penstock.kernel.state.OrderKey;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import java.util.stream.IntStream;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DayTimeIntervalType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.NullType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.YearMonthIntervalType;

/**
 * One aggregate call of an operator: its arguments, its accumulator and its result type.
 *
 * <p>{@link #create} returns a self-contained accumulator. It represents the change of an epoch
 * everywhere, and the state where groups are small (sessions) or the result is as large as the group (ARRAY_AGG). {@link
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
  /** The user-visible call, if its value can overflow its type; null: it cannot, or an overflow fails the query. */
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
    spec.path("aggs").forEach(call -> out.add(new Call(call, input, appendOnly, ansi).build()));
    return out;
  }

  /** One entry of the description, while it is being read. */
  private static final class Call {
    private final JsonNode spec;
    private final Input input;
    private final boolean appendOnly;
    private final boolean ansi;
    private final String func;
    private final List<String> args;
    private final DataType type;
    private final List<Integer> at = new ArrayList<>();
    private Kept kept;
    private boolean arrival;

    Call(JsonNode spec, Input input, boolean appendOnly, boolean ansi) {
      this.spec = spec;
      this.input = input;
      this.appendOnly = appendOnly;
      this.ansi = ansi;
      this.func = Input.text(spec, "func").toLowerCase(java.util.Locale.ROOT);
      this.args = Input.texts(spec, "args");
      this.type = DataType.fromDDL(Input.text(spec, "type"));
    }

    AggFunction build() {
      boolean distinct = spec.path("distinct").asBoolean();
      Accumulator.Factory factory = factory(distinct);
      int[] ordinals = at.stream().mapToInt(i -> i).toArray();
      return new AggFunction(Input.text(spec, "name"), type, ordinals, factory, kept, arrival, Input.text(spec, "fails"));
    }

    private Accumulator.Factory factory(boolean distinct) {
      switch (func) {
        case "min", "max", "min_by", "max_by" -> {
          return extremum();
        }
        case "rows_at_min", "rows_at_max" -> {
          return peers();
        }
        case "first", "first_value", "any_value", "last", "last_value" -> {
          return edge();
        }
        case "array_agg", "collect_list" -> {
          return listing(distinct, Listing::array);
        }
        case "string_agg", "listagg" -> {
          return listing(distinct, Listing::joined);
        }
        case "recomputed" -> {
          return recomputed(distinct);
        }
        case "collect_set" -> {
          arg(0, null);
          return bag(keys(false, 0), new int[] {0}, Bag::set);
        }
        case "mode" -> {
          arg(0, null);
          return bag(keys(false, 0), new int[] {0}, Bag::mode);
        }
        case "percentile", "percentile_cont", "median" -> {
          return percentile(DataTypes.DoubleType, Percentile::between);
        }
        case "percentile_disc" -> {
          return percentile(DataTypes.DoubleType, Percentile::one);
        }
        case "approx_percentile", "percentile_approx" -> {
          return percentile(null, Percentile::one);
        }
        case "approx_count_distinct" -> {
          arg(0, null);
          return distinct(Counting.Count::new);
        }
        default -> {
          Accumulator.Factory plain = algebraic();
          return distinct && !args.isEmpty() ? distinct(plain) : plain;
        }
      }
    }

    private Accumulator.Factory algebraic() {
      switch (func) {
        case "count" -> {
          IntStream.range(0, args.size()).forEach(i -> arg(i, null));
          return Counting.Count::new;
        }
        case "count_if" -> {
          arg(0, DataTypes.BooleanType);
          return Counting.Bools::countIf;
        }
        case "bool_and", "every" -> {
          arg(0, DataTypes.BooleanType);
          return Counting.Bools::and;
        }
        case "bool_or", "some", "any" -> {
          arg(0, DataTypes.BooleanType);
          return Counting.Bools::or;
        }
        case "bit_and" -> {
          arg(0, null);
          return Counting.Bits::and;
        }
        case "bit_or" -> {
          arg(0, null);
          return Counting.Bits::or;
        }
        case "bit_xor" -> {
          arg(0, null);
          return Counting.Bits::xor;
        }
        case "sum", "avg", "mean", "try_sum", "try_avg" -> {
          return sum();
        }
        default -> {
          Moments.Kind kind = moments();
          DataType each = DataTypes.DoubleType;
          arg(0, each);
          if (args.size() > 1) {
            arg(1, each);
          }
          return (Accumulator.Factory) () -> new Moments(kind);
        }
      }
    }

    private Moments.Kind moments() {
      return switch (func) {
        case "stddev", "std", "stddev_samp" -> Moments.Kind.STDDEV_SAMP;
        case "stddev_pop" -> Moments.Kind.STDDEV_POP;
        case "variance", "var_samp" -> Moments.Kind.VAR_SAMP;
        case "var_pop" -> Moments.Kind.VAR_POP;
        case "covar_samp" -> Moments.Kind.COVAR_SAMP;
        case "covar_pop" -> Moments.Kind.COVAR_POP;
        case "corr" -> Moments.Kind.CORR;
        default -> throw new IllegalArgumentException("no aggregate function " + func);
      };
    }

    private Accumulator.Factory sum() {
      boolean average = !func.endsWith("sum");
      DataType own = input.declared(args.get(0));
      Sums.Overflow overflow = func.startsWith("try_") ? Sums.Overflow.NULL
          : ansi ? Sums.Overflow.ERROR : Sums.Overflow.WRAP;
      if (own instanceof DecimalType d && type instanceof DecimalType result) {
        arg(0, null);
        int scale = d.scale();
        Sums.Overflow wide = overflow == Sums.Overflow.WRAP ? Sums.Overflow.NULL : overflow;
        return () -> new Sums.Decimals(average, scale, result, wide);
      }
      if (own instanceof DoubleType || own instanceof FloatType || own instanceof StringType || own instanceof NullType) {
        arg(0, DataTypes.DoubleType);
        return () -> new Sums.Doubles(average);
      }
      arg(0, null);
      boolean interval = own instanceof DayTimeIntervalType || own instanceof YearMonthIntervalType;
      Sums.Longs.Kind kind = !average ? Sums.Longs.Kind.SUM
          : interval ? Sums.Longs.Kind.AVG_ROUNDED : Sums.Longs.Kind.AVG;
      return () -> new Sums.Longs(kind, overflow);
    }

    private Accumulator.Factory extremum() {
      IntStream.range(0, args.size()).forEach(i -> arg(i, null));
      boolean greatest = func.startsWith("max");
      DataType[] types = at.stream().map(input::type).toArray(DataType[]::new);
      int compared = types.length - 1;
      if (appendOnly) {
        Best.Keep keep = greatest ? Best.Keep.GREATEST : Best.Keep.LEAST;
        return () -> new Best(keep, true, types);
      }
      // The compared argument first; among equal ones the smallest value.
      OrderKey order = compared == 0
          ? keys(greatest, 0)
          : OrderKey.of(new OrderKey.Field(types[1], greatest, true), OrderKey.Field.asc(types[0]));
      kept = new Kept.Extremum(order, compared);
      int[] counted = compared == 0 ? new int[] {0} : new int[] {1, 0};
      int[] skipNull = {compared};
      Function<Bag, Object> finish = (Function<Bag, Object> & Serializable) bag -> bag.least(compared);
      return () -> new Bag(order, counted, skipNull, null, finish);
    }

    /** With {@code filtered}, the last argument is NULL in rows that do not count. */
    private Accumulator.Factory recomputed(boolean distinct) {
      IntStream.range(0, args.size()).forEach(i -> arg(i, null));
      int[] all = IntStream.range(0, args.size()).toArray();
      int[] skipNull = spec.path("filtered").asBoolean() ? new int[] {args.size() - 1} : new int[0];
      DataType[] types = at.stream().map(input::type).toArray(DataType[]::new);
      Recomputed call = Recomputed.of(input.source(), Input.text(spec, "call"), args, types, type);
      OrderKey order = keys(false, all);
      Function<Bag, Object> finish = (Function<Bag, Object> & Serializable) bag -> call.of(bag, distinct);
      return () -> new Bag(order, all, skipNull, null, finish);
    }

    private Accumulator.Factory peers() {
      if (!appendOnly) {
        throw new IllegalArgumentException(func + " is for append-only rows");
      }
      IntStream.range(0, args.size()).forEach(i -> arg(i, null));
      boolean greatest = func.equals("rows_at_max");
      DataType[] types = at.stream().map(input::type).toArray(DataType[]::new);
      return () -> new Peers(greatest, types);
    }

    /** A second argument, if there is one, is NULL in rows that do not count. */
    private Accumulator.Factory edge() {
      IntStream.range(0, args.size()).forEach(i -> arg(i, null));
      arrival = true;
      boolean last = func.startsWith("last");
      boolean skip = args.size() > 1 || spec.path("ignoreNulls").asBoolean();
      DataType[] types = at.stream().map(input::type).toArray(DataType[]::new);
      if (appendOnly) {
        Best.Keep keep = last ? Best.Keep.LAST : Best.Keep.FIRST;
        return () -> new Best(keep, skip, types);
      }
      OrderKey codec = keys(false, IntStream.range(0, at.size()).toArray());
      kept = new Kept.Edge(codec, last);
      int[] skipNull = skip ? new int[] {at.size() - 1} : new int[0];
      return () -> new Listing(
          codec, null, null, skipNull, -1, false, last, last ? Listing::last : Listing::first);
    }

    private Accumulator.Factory listing(boolean distinct, ListingResult finish) {
      IntStream.range(0, args.size()).forEach(i -> arg(i, null));
      int separator = args.size() > 1 ? 1 : -1;
      List<OrderKey.Field> fields = new ArrayList<>();
      List<Integer> orderAt = new ArrayList<>();
      for (JsonNode key : spec.path("order")) {
        at.add(input.add(key.get("col").asText()));
        orderAt.add(at.size() - 1);
        fields.add(new OrderKey.Field(
            input.type(at.get(at.size() - 1)), key.path("desc").asBoolean(), key.path("nullsFirst").asBoolean(true)));
      }
      arrival = true;
      OrderKey codec = keys(false, IntStream.range(0, at.size()).toArray());
      OrderKey order = fields.isEmpty() ? null : OrderKey.of(fields);
      int[] ordered = orderAt.stream().mapToInt(i -> i).toArray();
      return () -> new Listing(codec, order, ordered, new int[] {0}, separator, distinct, false, finish::of);
    }

    private Accumulator.Factory percentile(DataType valueType, BagResult finish) {
      boolean desc = false;
      JsonNode within = spec.path("order").path(0);
      int rest = 0;
      if (within.hasNonNull("col")) {
        at.add(input.add(within.get("col").asText(), valueType));
        desc = within.path("desc").asBoolean();
      } else {
        arg(0, valueType);
        rest = 1;
      }
      OrderKey order = keys(desc, 0);
      OrderKey constants = null;
      if (args.size() > rest) {
        boolean several = input.declared(args.get(rest)) instanceof ArrayType;
        DataType fraction = several ? DataTypes.createArrayType(DataTypes.DoubleType) : DataTypes.DoubleType;
        arg(rest, fraction);
        constants = OrderKey.of(OrderKey.Field.asc(fraction));
      }
      OrderKey fractions = constants;
      return () -> new Bag(order, new int[] {0}, new int[] {0}, fractions, finish::of);
    }

    private Accumulator.Factory bag(OrderKey order, int[] skipNull, BagResult finish) {
      int[] counted = IntStream.range(0, order.size()).toArray();
      return () -> new Bag(order, counted, skipNull, null, finish::of);
    }

    private Accumulator.Factory distinct(Accumulator.Factory inner) {
      int[] counted = IntStream.range(0, at.size()).toArray();
      OrderKey order = keys(false, counted);
      kept = new Kept.Different(order, inner, appendOnly);
      return () -> new Distinct(new Bag(order, counted, counted, null, bag -> null), inner);
    }

    private void arg(int i, DataType cast) {
      if (i >= args.size()) {
        throw new IllegalArgumentException(func + " needs " + (i + 1) + " arguments, got " + args);
      }
      at.add(input.add(args.get(i), cast));
    }

    private OrderKey keys(boolean desc, int... positions) {
      return OrderKey.of(Arrays.stream(positions)
          .mapToObj(p -> new OrderKey.Field(input.type(at.get(p)), desc, true))
          .toList());
    }
  }

  private interface BagResult extends Serializable {
    Object of(Bag bag);
  }

  private interface ListingResult extends Serializable {
    Object of(Listing listing);
  }
}
