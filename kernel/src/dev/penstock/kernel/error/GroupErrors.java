package dev.penstock.kernel.error;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;
import java.util.function.IntFunction;
import org.apache.spark.sql.catalyst.CatalystTypeConverters;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * Reports groups, or rows, with a value that cannot be computed.
 *
 * <p>An operator has {@link Failed} in place of such a value. Instead of inserting and retracting the row, it reports the error and its retraction, so the error exists
 * as long as the value cannot be computed.
 */
public final class GroupErrors implements Serializable {
  private static final long serialVersionUID = 1L;

  /** A value that cannot be computed. */
  public record Failed(String expression, String error) implements Serializable {}

  private final Attempt attempt;
  private final RowText text;
  private final DataType[] travels;

  private GroupErrors(Attempt attempt, StructType columns, DataType[] travels) {
    this.attempt = attempt;
    this.text = new RowText(columns, attempt.names);
    this.travels = travels;
  }

  /**
   * The reporter of an operator; null if the spec is null, because none of its values can fail.
   *
   * @param columns the columns that identify a group, with types whose internal values equal the wire values
   * @param travels their wire types
   */
  public static GroupErrors of(JsonNode spec, StructType columns, DataType[] travels) {
    return spec == null || spec.isNull() || spec.isMissingNode()
        ? null : new GroupErrors(new Attempt(spec), columns, travels);
  }

  /** The first value that cannot be computed; null if all can. */
  public static Failed first(Object[] values) {
    for (Object value : values) {
      if (value instanceof Failed failed) {
        return failed;
      }
    }
    return null;
  }

  /** Reports a group; {@code column} gives its columns by ordinal, in wire form. */
  public void report(Failed failed, IntFunction<Object> column, long weight) {
    if (!attempt.reports()) {
      return;
    }
    Object[] values = new Object[travels.length];
    for (int i = 0; i < values.length; i++) {
      values[i] = CatalystTypeConverters.createToCatalystConverter(travels[i]).apply(column.apply(i));
    }
    attempt.report(failed.expression, failed.error, text.of(new GenericInternalRow(values)), weight);
  }
}
