package dev.penstock.kernel.row;

import org.apache.spark.sql.Column;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DayTimeIntervalType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimeType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.sql.types.YearMonthIntervalType;

/**
 * The form of values inside a processor: dates and times as plain integers, everything else unchanged.
 *
 * <p>Timestamps of both kinds and day-time intervals are BIGINT micros, dates INT days, year-month intervals INT
 * months, times of day BIGINT nanos; also inside arrays, structs and maps. {@link #to} and {@link #from} are native Spark
 * expressions, so a processor never creates a java.time object, and {@code OrderKey} decodes to the values of a Row.
 * The session time zone must be UTC.
 */
public final class Wire {
  private Wire() {}

  private static final Column EPOCH = functions.lit(0L).cast("timestamp");

  /** The wire type of a column of type {@code t}. */
  public static DataType type(DataType t) {
    if (t instanceof TimestampType || t instanceof TimestampNTZType || t instanceof DayTimeIntervalType
        || t instanceof TimeType) {
      return DataTypes.LongType;
    } else if (t instanceof DateType || t instanceof YearMonthIntervalType) {
      return DataTypes.IntegerType;
    } else if (t instanceof ArrayType a) {
      return DataTypes.createArrayType(type(a.elementType()), a.containsNull());
    } else if (t instanceof MapType m) {
      return DataTypes.createMapType(type(m.keyType()), type(m.valueType()), m.valueContainsNull());
    } else if (t instanceof StructType s) {
      StructType out = new StructType();
      for (StructField f : s.fields()) {
        out = out.add(f.name(), type(f.dataType()), f.nullable());
      }
      return out;
    }
    return t;
  }

  /** Converts a column of type {@code t} to its wire type. */
  static Column to(Column c, DataType t) {
    return convert(c, t, true);
  }

  /** Converts a column back from its wire type to type {@code t}. */
  public static Column from(Column c, DataType t) {
    return convert(c, t, false);
  }

  private static Column convert(Column c, DataType t, boolean out) {
    if (type(t).equals(t)) {
      return c;
    } else if (t instanceof TimestampType) {
      return out ? functions.unix_micros(c) : functions.timestamp_micros(c);
    } else if (t instanceof TimestampNTZType) {
      return out ? functions.unix_micros(c.cast("timestamp")) : functions.timestamp_micros(c).cast(t);
    } else if (t instanceof DayTimeIntervalType) {
      return out ? functions.unix_micros(EPOCH.plus(c)) : functions.timestamp_micros(c).minus(EPOCH).cast(t);
    } else if (t instanceof DateType) {
      return out ? functions.unix_date(c) : functions.date_from_unix_date(c);
    } else if (t instanceof YearMonthIntervalType) {
      return out
          ? c.cast(DataTypes.createYearMonthIntervalType()).cast("int")
          : functions.make_ym_interval(functions.lit(0), c).cast(t);
    } else if (t instanceof TimeType) {
      return out
          ? functions.call_function("time_to_micros", c).multiply(functions.lit(1000L))
          : functions.call_function("time_from_micros", c.divide(functions.lit(1000L)).cast("bigint")).cast(t);
    } else if (t instanceof ArrayType a) {
      return each(c, a.elementType(), out);
    } else if (t instanceof MapType m) {
      return functions.map_from_arrays(
          each(functions.map_keys(c), m.keyType(), out), each(functions.map_values(c), m.valueType(), out));
    }
    StructType s = (StructType) t;
    // Fields are accessed by name, and two of them may have the same name.
    StructType given = (StructType) (out ? t : type(t));
    StructType numbered = new StructType();
    for (int i = 0; i < s.size(); i++) {
      numbered = numbered.add("f" + i, given.apply(i).dataType());
    }
    Column row = c.cast(numbered);
    Column[] fields = new Column[s.size()];
    for (int i = 0; i < fields.length; i++) {
      StructField f = s.apply(i);
      fields[i] = convert(row.getField("f" + i), f.dataType(), out).as(f.name());
    }
    return functions.when(c.isNotNull(), functions.struct(fields));
  }

  /** Converts the elements of an array. Spark's transform() reads NULL elements of a columnar array, which fails or gives a value; slice() copies the array first. */
  private static Column each(Column array, DataType element, boolean out) {
    if (type(element).equals(element)) {
      return array;
    }
    Column copy = functions.slice(array, functions.lit(1), functions.size(array));
    return functions.transform(copy, e -> convert(e, element, out));
  }
}
