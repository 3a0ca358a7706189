package dev.penstock.kernel.row;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * The columns of its input that an operator needs, each once, in wire form (see {@link Wire}).
 *
 * <p>Ordinals are assigned in the order of the first request; {@link #dataset} has exactly these columns, named
 * {@code c0, c1, …}, whatever the names of the input.
 */
public final class Input {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final Dataset<Row> source;
  private final Map<String, Integer> known = new LinkedHashMap<>();
  private final List<Column> columns = new ArrayList<>();
  private final List<DataType> types = new ArrayList<>();

  public Input(Dataset<Row> source) {
    this.source = source;
  }

  /** Reads an operator's description. */
  public static JsonNode parse(String json) {
    try {
      return JSON.readTree(json);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** A text field, or null if it is missing or null. */
  public static String text(JsonNode spec, String field) {
    return spec.hasNonNull(field) ? spec.get(field).asText() : null;
  }

  /** The texts of a list field; empty if it is missing. */
  public static List<String> texts(JsonNode spec, String field) {
    List<String> out = new ArrayList<>();
    spec.path(field).forEach(n -> out.add(n.asText()));
    return out;
  }

  /** The column of this name, which may contain any character. */
  static Column column(Dataset<Row> data, String name) {
    return data.col("`" + name.replace("`", "``") + "`");
  }

  /** The rows before anything is requested. */
  public Dataset<Row> source() {
    return source;
  }

  /** The type a column has in the input. */
  public DataType declared(String name) {
    return source.schema().apply(name).dataType();
  }

  /** The ordinal of a column. */
  public int add(String name) {
    return add(name, null);
  }

  /** The ordinal of a column cast to a type; null keeps its own. */
  public int add(String name, DataType cast) {
    DataType own = declared(name);
    DataType type = cast == null ? own : cast;
    return known.computeIfAbsent(name + "\u0000" + type.json(), k -> {
      Column c = column(source, name);
      columns.add(Wire.to(type.equals(own) ? c : c.cast(type), type).as("c" + columns.size()));
      types.add(Wire.type(type));
      return types.size() - 1;
    });
  }

  /** The ordinal of a column without conversion, which may contain Java objects. */
  public int addRaw(String name) {
    columns.add(column(source, name).as("c" + columns.size()));
    types.add(declared(name));
    return types.size() - 1;
  }

  /** The wire type of the column at an ordinal. */
  public DataType type(int ordinal) {
    return types.get(ordinal);
  }

  /** The columns at these ordinals as a grouping key, named {@code k0, k1, …}; one constant column if there are none. */
  public StructType keySchema(int[] ordinals) {
    StructType schema = new StructType();
    for (int i = 0; i < ordinals.length; i++) {
      schema = schema.add("k" + i, types.get(ordinals[i]), true);
    }
    return ordinals.length == 0 ? schema.add("k0", DataTypes.IntegerType, false) : schema;
  }

  /** The columns of a {@link #keySchema}, to group by. */
  public static Column[] keyColumns(StructType keySchema) {
    return Arrays.stream(keySchema.fieldNames()).map(org.apache.spark.sql.functions::col).toArray(Column[]::new);
  }

  /** The input with just the requested columns. */
  public Dataset<Row> dataset() {
    return columns.isEmpty()
        ? source.select(org.apache.spark.sql.functions.lit(true).as("c0"))
        : source.select(columns.toArray(Column[]::new));
  }
}
