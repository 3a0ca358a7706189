package dev.penstock.kernel.recursion;

import com.fasterxml.jackson.databind.JsonNode;
import dev.penstock.kernel.error.PairErrors;
import dev.penstock.kernel.join.JoinPlan;
import dev.penstock.kernel.row.Pack;
import dev.penstock.kernel.row.PairPredicate;
import dev.penstock.kernel.row.PhysicalRow;
import dev.penstock.kernel.row.RowFunction;
import dev.penstock.kernel.state.StateSize;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.StructType;

/**
 * A linear recursion, {@code WITH RECURSIVE r AS (base UNION [ALL] step)}, where the step is an inner join of r with one other
 * collection, a condition and a projection.
 *
 * <ul>
 *   <li>Result: after every epoch the summed output equals the batch query over the summed inputs: with UNION each derivable row
 *       once; with UNION ALL each row once per derivation.
 *   <li>NULLs: a NULL key of the step's join matches nothing; two rows are the same if they are equal or both NULL in
 *       every column.
 *   <li>Depth: a row of the base has depth 0, and a row derived by the step one more than the row it is derived from. An epoch
 *       in which some row would be deeper than {@code maxDepth} fails.
 *   <li>Errors: a row, or a pair of rows, for which the step cannot be computed derives nothing, and is reported.
 *   <li>State: each row with its number of derivations by depth, the rows by their join key, and the other collection by its key.
 *       The cost of an epoch is that of its changes, by depth; removing a row costs as much as the rows derived from it.
 *   <li>One key: everything is in one partition.
 * </ul>
 *
 * <p>Spec: {@code columns} and {@code types} of r, {@code all}, {@code maxDepth}, {@code otherColumns}, {@code rowKeys} (SQL over
 * r), {@code otherKeys} (column names), {@code outputs} (SQL over r and the other columns), {@code residual}, {@code errors}
 * (see {@link PairErrors}; with the user-visible {@code expression} of the step), {@code baseWeight},
 * {@code otherWeight}.
 */
public final class Recursion {
  static final int BASE = 0;
  static final int OTHER = 1;

  static final int SIDE = 1;
  static final int KEY = 2;
  static final int WEIGHT = 3;
  static final int ROW = 4;

  private static final StructType INPUT = new StructType()
      .add("__one", DataTypes.IntegerType, false)
      .add("__side", DataTypes.IntegerType, false)
      .add("__key", DataTypes.BinaryType, true)
      .add("__count", DataTypes.LongType, false)
      .add("__row", DataTypes.BinaryType, false);

  private Recursion() {}

  /** Applies the recursion to two frames. Output: the columns of r, {@code __weight}. */
  public static Dataset<Row> apply(Dataset<Row> base, Dataset<Row> other, String specJson) {
    JsonNode spec = PhysicalRow.parse(specJson);
    List<String> names = PhysicalRow.texts(spec, "columns");
    StructType schema = new StructType();
    List<DataType> types = new ArrayList<>();
    for (int i = 0; i < names.size(); i++) {
      types.add(DataType.fromDDL(spec.get("types").get(i).asText()));
      schema = schema.add(names.get(i), types.get(i), true);
    }
    List<String> otherColumns = PhysicalRow.texts(spec, "otherColumns");
    StructType otherSchema = JoinPlan.schema(other, otherColumns);
    List<String> otherKeys = PhysicalRow.texts(spec, "otherKeys");

    List<Column> row = new ArrayList<>();
    for (int i = 0; i < names.size(); i++) {
      row.add(same(JoinPlan.column(base.columns()[i]).cast(types.get(i)), types.get(i)));
    }
    Column nothing = functions.lit(null).cast("binary");
    Dataset<Row> bases = base.select(
        functions.lit(0).as("__one"), functions.lit(BASE).as("__side"), nothing.as("__key"),
        weight(PhysicalRow.text(spec, "baseWeight")).as("__count"), Pack.of(Pack.Mode.ROW, row).as("__row"));

    List<Column> keys = new ArrayList<>();
    Column lost = functions.lit(false);
    for (String key : otherKeys) {
      lost = lost.or(JoinPlan.column(key).isNull());
      keys.add(same(JoinPlan.column(key), other.schema().apply(key).dataType()));
    }
    List<Column> whole = new ArrayList<>();
    otherColumns.forEach(name -> whole.add(JoinPlan.column(name)));
    // Deliberately non-deterministic, as in JoinPlan: the filter must not move below a watermark.
    Column never = Pack.of(Pack.Mode.SEQUENCE, List.of()).lt(0L);
    Dataset<Row> others = other.where(functions.not(lost).or(never)).select(
        functions.lit(0).as("__one"), functions.lit(OTHER).as("__side"),
        Pack.of(Pack.Mode.ROW, keys).as("__key"),
        weight(PhysicalRow.text(spec, "otherWeight")).as("__count"), Pack.of(Pack.Mode.ROW, whole).as("__row"));

    List<Column> rowKeys = new ArrayList<>();
    List<String> rowKeyTexts = PhysicalRow.texts(spec, "rowKeys");
    for (int i = 0; i < rowKeyTexts.size(); i++) {
      DataType type = other.schema().apply(otherKeys.get(i)).dataType();
      rowKeys.add(same(functions.expr(rowKeyTexts.get(i)).cast(type), type));
    }
    List<Column> outputs = new ArrayList<>();
    List<String> outputTexts = PhysicalRow.texts(spec, "outputs");
    for (int i = 0; i < outputTexts.size(); i++) {
      outputs.add(same(functions.expr(outputTexts.get(i)).cast(types.get(i)), types.get(i)));
    }
    String residual = PhysicalRow.text(spec, "residual");
    var spark = base.sparkSession();
    RecursionStep step = new RecursionStep(
        RowFunction.of(spark, rowKeys, schema, new StructType()),
        rowKeys.size(),
        RowFunction.of(spark, outputs, schema, otherSchema),
        residual == null ? null : PairPredicate.of(spark, residual, schema, otherSchema),
        PairErrors.of(spec.path("errors"), schema, otherSchema),
        spec.path("errors").path("expression").asText());
    RecursionProcessor processor =
        new RecursionProcessor(step, spec.get("all").asBoolean(), spec.get("maxDepth").asInt());
    Dataset<Row> packed = bases.union(others)
        .groupBy(functions.col("__one"))
        .as(Encoders.INT(), Encoders.row(INPUT))
        .transformWithState(
            StateSize.counted(spec.path("size").asLong(), one -> new byte[0], processor), TimeMode.None(), OutputMode.Append(),
            Encoders.row(JoinPlan.OUTPUT));
    return JoinPlan.unpack(packed, schema, null);
  }

  private static Column weight(String name) {
    return name == null ? functions.lit(1L) : JoinPlan.column(name);
  }

  /** Gives equal values the same bytes: -0.0 becomes 0.0, and there is one NaN. */
  private static Column same(Column value, DataType type) {
    if (type instanceof DoubleType || type instanceof FloatType) {
      String name = type.typeName();
      return functions.when(functions.isnan(value), functions.lit(Double.NaN).cast(name))
          .otherwise(value.plus(functions.lit(0.0).cast(name)));
    }
    return value;
  }
}
