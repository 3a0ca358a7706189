package dev.penstock.kernel.error;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.Serializable;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.json.StructsToJsonEvaluator;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** Formats a row as JSON, with the user-visible names of its columns. The same values give the same text. */
final class RowText implements Serializable {
  private static final long serialVersionUID = 1L;

  private final StructType schema;
  private final int[] at;
  private transient StructsToJsonEvaluator json;

  /** Formats those of {@code columns} that have names, in the order of the names. */
  RowText(StructType columns, LinkedHashMap<String, String> names) {
    List<String> known = names.keySet().stream().filter(List.of(columns.fieldNames())::contains).toList();
    StructType named = new StructType();
    for (String column : known) {
      named = named.add(names.get(column), columns.apply(column).dataType(), true);
    }
    schema = named;
    at = known.stream().mapToInt(columns::fieldIndex).toArray();
  }

  String of(InternalRow row) {
    Object[] values = new Object[at.length];
    for (int i = 0; i < at.length; i++) {
      values[i] = row.isNullAt(at[i]) ? null : row.get(at[i], schema.apply(i).dataType());
    }
    return of(values);
  }

  /** The text of values of the named columns, in Spark's internal form. */
  private String of(Object[] values) {
    if (json == null) {
      scala.collection.immutable.Map<String, String> options =
          scala.collection.immutable.Map.from(CollectionConverters.asScala(Map.of("ignoreNullFields", "false")));
      json = new StructsToJsonEvaluator(options, schema, Option.apply("UTC"));
    }
    try {
      return String.valueOf(json.evaluate(new GenericInternalRow(values)));
    } catch (RuntimeException e) {
      // The type has no JSON form; its partial output must not leak into the next text.
      json = null;
      ObjectNode texts = new ObjectMapper().createObjectNode();
      for (int i = 0; i < values.length; i++) {
        texts.put(schema.apply(i).name(), values[i] == null ? null : String.valueOf(values[i]));
      }
      return texts.toString();
    }
  }
}
