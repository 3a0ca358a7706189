package dev.penstock.kernel.row;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * The data columns of an operator as its processor sees them.
 *
 * <p>Values have the form of {@link Wire}, so that a processor creates no date objects and an {@code OrderKey} decodes to the
 * values of a Row. The projections in and out are native. Column names are the outer ones.
 */
public final class PhysicalRow implements Serializable {
  private static final long serialVersionUID = 1L;

  /** The column of weights in every operator's output. */
  public static final String WEIGHT = "__weight";

  final StructType outer;
  public final StructType inner;

  private PhysicalRow(StructType outer) {
    this.outer = outer;
    StructType s = new StructType();
    for (StructField f : outer.fields()) {
      s = s.add(f.name(), Wire.type(f.dataType()), true);
    }
    this.inner = s;
  }

  /** These columns of a dataset, in this order. */
  public static PhysicalRow of(StructType schema, List<String> columns) {
    StructType s = new StructType();
    for (String c : columns) {
      s = s.add(c, schema.apply(c).dataType(), true);
    }
    return new PhysicalRow(s);
  }

  /** These columns and one more. */
  public PhysicalRow with(String name, DataType type) {
    return new PhysicalRow(outer.add(name, type, true));
  }

  /** Columns to select from the input: the data, then BIGINT {@link #WEIGHT} (1 if {@code weight} is null). */
  public List<Column> enter(String weight) {
    List<Column> out = new ArrayList<>();
    for (StructField f : outer.fields()) {
      out.add(Wire.to(column(f.name()), f.dataType()).as(f.name()));
    }
    Column w = weight == null ? functions.lit(1L) : functions.coalesce(column(weight).cast("bigint"), functions.lit(0L));
    out.add(w.as(WEIGHT));
    return out;
  }

  /** As {@link #enter}, with one bit pattern for floats that are equal in SQL: zeros positive, one NaN. */
  public List<Column> enterAsKey(String weight) {
    List<Column> out = enter(weight);
    for (int i = 0; i < outer.size(); i++) {
      StructField f = outer.apply(i);
      if (f.dataType() instanceof DoubleType || f.dataType() instanceof FloatType) {
        Column nan = functions.lit(Double.NaN).cast(f.dataType());
        Column zero = functions.lit(0.0).cast(f.dataType());
        Column c = column(f.name());
        out.set(i, functions.when(c.equalTo(zero), zero).when(functions.isnan(c), nan).otherwise(c).as(f.name()));
      }
    }
    return out;
  }

  /** The operator's output as outer columns: the data, then the weight. */
  public Dataset<Row> leave(Dataset<Row> processed) {
    return leave(processed, WEIGHT);
  }

  /** The operator's output as outer columns: the data, then one more BIGINT. */
  public Dataset<Row> leave(Dataset<Row> processed, String last) {
    List<Column> out = new ArrayList<>();
    for (StructField f : outer.fields()) {
      out.add(Wire.from(column(f.name()), f.dataType()).as(f.name()));
    }
    out.add(column(last));
    return processed.select(out.toArray(Column[]::new));
  }

  /** The schema of the rows that {@link #enter} returns and {@link #leave} accepts. */
  public StructType weighted() {
    return with(WEIGHT);
  }

  /** Schema of the data with one more BIGINT. */
  public StructType with(String last) {
    return inner.add(last, DataTypes.LongType, false);
  }

  public int size() {
    return outer.size();
  }

  public int indexOf(String column) {
    return outer.fieldIndex(column);
  }

  public int[] indexesOf(List<String> columns) {
    return columns.stream().mapToInt(this::indexOf).toArray();
  }

  public static Column column(String name) {
    return functions.col("`" + name.replace("`", "``") + "`");
  }

  /** The first {@code width} values of a row, then a weight or another number. */
  public static Row weighted(Row row, int width, long weight) {
    Object[] values = new Object[width + 1];
    for (int i = 0; i < width; i++) {
      values[i] = row.get(i);
    }
    values[width] = weight;
    return RowFactory.create(values);
  }

  /** The values at these ordinals as a grouping key (one constant if there are none); equal floats have equal bits. */
  public static Row key(Row row, int[] ordinals) {
    if (ordinals.length == 0) {
      return RowFactory.create(0);
    }
    Object[] values = new Object[ordinals.length];
    for (int i = 0; i < values.length; i++) {
      Object v = row.get(ordinals[i]);
      if (v instanceof Double d) {
        v = d == 0d ? (Double) 0d : d.isNaN() ? (Double) Double.NaN : d;
      } else if (v instanceof Float f) {
        v = f == 0f ? (Float) 0f : f.isNaN() ? (Float) Float.NaN : f;
      }
      values[i] = v;
    }
    return RowFactory.create(values);
  }

  /** The schema of {@link #key}, with field names that are valid whatever the columns are called. */
  public StructType keySchema(int[] ordinals) {
    StructType s = new StructType();
    if (ordinals.length == 0) {
      return s.add("k", DataTypes.IntegerType, false);
    }
    for (int i = 0; i < ordinals.length; i++) {
      s = s.add("k" + i, inner.apply(ordinals[i]).dataType(), true);
    }
    return s;
  }

  public static JsonNode parse(String json) {
    try {
      return new ObjectMapper().readTree(json);
    } catch (JsonProcessingException e) {
      throw new IllegalArgumentException("operator specification is not JSON", e);
    }
  }

  /** A member that is a string, or null if it is absent or null. */
  public static String text(JsonNode spec, String member) {
    JsonNode n = spec.get(member);
    return n == null || n.isNull() ? null : n.asText();
  }

  public static List<String> texts(JsonNode spec, String member) {
    List<String> out = new ArrayList<>();
    JsonNode n = spec.get(member);
    if (n != null) {
      n.forEach(x -> out.add(x.asText()));
    }
    return out;
  }
}
