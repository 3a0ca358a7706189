package dev.penstock.kernel.aggregate;

import com.fasterxml.jackson.databind.JsonNode;
import dev.penstock.kernel.row.Input;
import dev.penstock.kernel.state.OrderKey;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import java.util.stream.IntStream;
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

/** Reads the description of one aggregate call: requests its columns from the input and builds its accumulators. */
final class AggregateCall {
  private final JsonNode spec;
  private final Input input;
  private final boolean appendOnly;
  private final boolean ansi;
  private final String func;
  private final List<String> args;
  private final DataType type;
  private final boolean distinct;
  private final List<Integer> at = new ArrayList<>();
  private Kept kept;
  private boolean arrival;

  AggregateCall(JsonNode spec, Input input, boolean appendOnly, boolean ansi) {
    this.spec = spec;
    this.input = input;
    this.appendOnly = appendOnly;
    this.ansi = ansi;
    this.func = Input.text(spec, "func");
    this.args = Input.texts(spec, "args");
    this.type = DataType.fromDDL(Input.text(spec, "type"));
    this.distinct = spec.path("distinct").asBoolean();
  }

  /** Builds the accumulators. Call it before reading the other properties. */
  Accumulator.Factory factory() {
    return AggregateName.of(func).build(this);
  }

  String name() {
    return Input.text(spec, "name");
  }

  DataType type() {
    return type;
  }

  /** The columns of the arguments in the input. */
  int[] ordinals() {
    return at.stream().mapToInt(i -> i).toArray();
  }

  Kept kept() {
    return kept;
  }

  boolean arrival() {
    return arrival;
  }

  String fails() {
    return Input.text(spec, "fails");
  }

  /** Folds all arguments, each cast to a type; null: no cast. */
  Accumulator.Factory folded(DataType cast, Accumulator.Factory plain) {
    IntStream.range(0, args.size()).forEach(i -> arg(i, cast));
    return each(plain);
  }

  Accumulator.Factory moments(Moments.Kind kind) {
    return folded(DataTypes.DoubleType, () -> new Moments(kind));
  }

  /** Folds the distinct values, with or without DISTINCT. */
  Accumulator.Factory countDifferent() {
    arg(0, null);
    return different(Counting.Count::new);
  }

  private Accumulator.Factory each(Accumulator.Factory plain) {
    return distinct && !args.isEmpty() ? different(plain) : plain;
  }

  /** {@code attempt}: an overflow gives NULL. */
  Accumulator.Factory sum(boolean average, boolean attempt) {
    return each(summed(average, attempt ? Sums.Overflow.NULL : ansi ? Sums.Overflow.ERROR : Sums.Overflow.WRAP));
  }

  private Accumulator.Factory summed(boolean average, Sums.Overflow overflow) {
    DataType own = input.declared(args.get(0));
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

  /** The extremum of the last argument; the result is the first argument. */
  Accumulator.Factory extremum(boolean greatest) {
    IntStream.range(0, args.size()).forEach(i -> arg(i, null));
    DataType[] types = at.stream().map(input::type).toArray(DataType[]::new);
    int compared = types.length - 1;
    if (appendOnly) {
      Best.Keep keep = greatest ? Best.Keep.GREATEST : Best.Keep.LEAST;
      return () -> new Best(keep, true, types);
    }
    // The compared argument first; among equal ones, the smallest value.
    OrderKey order = compared == 0
        ? keys(greatest, 0)
        : OrderKey.of(new OrderKey.Field(types[1], greatest, true), OrderKey.Field.asc(types[0]));
    kept = new Kept.Extremum(order, compared);
    int[] counted = compared == 0 ? new int[] {0} : new int[] {1, 0};
    int[] skipNull = {compared};
    Function<Bag, Object> finish = (Function<Bag, Object> & Serializable) bag -> bag.least(compared);
    return () -> new Bag(order, counted, skipNull, null, finish);
  }

  /** With {@code filtered}, rows whose last argument is NULL are ignored. */
  Accumulator.Factory recomputed() {
    boolean once = distinct;
    IntStream.range(0, args.size()).forEach(i -> arg(i, null));
    int[] all = IntStream.range(0, args.size()).toArray();
    int[] skipNull = spec.path("filtered").asBoolean() ? new int[] {args.size() - 1} : new int[0];
    DataType[] types = at.stream().map(input::type).toArray(DataType[]::new);
    Recomputed call = Recomputed.of(input.source(), Input.text(spec, "call"), args, types, type);
    OrderKey order = keys(false, all);
    Function<Bag, Object> finish = (Function<Bag, Object> & Serializable) bag -> call.of(bag, once);
    return () -> new Bag(order, all, skipNull, null, finish);
  }

  /** All rows with the extreme of the last argument. */
  Accumulator.Factory peers(boolean greatest) {
    if (!appendOnly) {
      throw new IllegalArgumentException(func + " is for append-only rows");
    }
    IntStream.range(0, args.size()).forEach(i -> arg(i, null));
    DataType[] types = at.stream().map(input::type).toArray(DataType[]::new);
    return () -> new Peers(greatest, types);
  }

  /** Rows whose second argument is NULL are ignored, if there is one. */
  Accumulator.Factory edge(boolean last) {
    IntStream.range(0, args.size()).forEach(i -> arg(i, null));
    arrival = true;
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

  Accumulator.Factory listing(ListingResult finish) {
    boolean once = distinct;
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
    return () -> new Listing(codec, order, ordered, new int[] {0}, separator, once, false, finish::of);
  }

  Accumulator.Factory percentile(DataType valueType, BagResult finish) {
    arg(0, valueType);
    OrderKey order = within();
    OrderKey constants = null;
    if (args.size() > 1) {
      boolean several = input.declared(args.get(1)) instanceof ArrayType;
      DataType fraction = several ? DataTypes.createArrayType(DataTypes.DoubleType) : DataTypes.DoubleType;
      arg(1, fraction);
      constants = OrderKey.of(OrderKey.Field.asc(fraction));
    }
    OrderKey fractions = constants;
    return () -> new Bag(order, new int[] {0}, new int[] {0}, fractions, finish::of);
  }

  /** Collects all values of the only argument. */
  Accumulator.Factory bag(BagResult finish) {
    arg(0, null);
    OrderKey order = within();
    return () -> new Bag(order, new int[] {0}, new int[] {0}, null, finish::of);
  }

  /** The order of WITHIN GROUP: of the first argument, descending if the call says so. */
  private OrderKey within() {
    return keys(spec.path("desc").asBoolean(), 0);
  }

  private Accumulator.Factory different(Accumulator.Factory inner) {
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

  interface BagResult extends Serializable {
    Object of(Bag bag);
  }

  interface ListingResult extends Serializable {
    Object of(Listing listing);
  }
}
