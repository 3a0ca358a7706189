package dev.penstock.kernel.state;

import java.io.ByteArrayOutputStream;
import java.io.Serializable;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.nio.charset.StandardCharsets;
import java.sql.Date;
import java.sql.Timestamp;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.Period;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.CharType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DayTimeIntervalType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.NullType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimeType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.sql.types.VarcharType;
import org.apache.spark.sql.types.VariantType;
import org.apache.spark.sql.types.YearMonthIntervalType;
import org.apache.spark.unsafe.types.VariantVal;

/**
 * Turns a tuple of column values into bytes whose unsigned order is the order of the tuple.
 *
 * <p>Order: as Spark sorts. Numbers by value, NaN above every number and equal to itself, -0.0 equal to 0.0; strings
 * and binaries by their (UTF-8) bytes; false before true; arrays element by element, then by length; structs field by
 * field; maps and variants have an arbitrary but fixed order. {@code desc} reverses a column, {@code nullsFirst} determines
 * the position of NULL whatever the direction. Two tuples are equal if and only if their keys are.
 */
public final class OrderKey implements Serializable {
  private static final long serialVersionUID = 1L;

  private static final byte NULL_FIRST = 0;
  private static final byte VALUE = 1;
  private static final byte NULL_LAST = 2;

  /** One column of the key. */
  public record Field(DataType type, boolean desc, boolean nullsFirst) implements Serializable {
    /** Ascending, NULL first: Spark's default. */
    public static Field asc(DataType type) {
      return new Field(type, false, true);
    }

    /** Descending, NULL last: Spark's default for DESC. */
    public static Field desc(DataType type) {
      return new Field(type, true, false);
    }
  }

  /** An encoded tuple; ordered by the tuple's order, equal if the tuples are equal. The arrays must not be changed. */
  public static final class Key implements Comparable<Key>, Serializable {
    private static final long serialVersionUID = 1L;
    private final byte[] full;

    Key(byte[] full) {
      this.full = full;
    }

    /** The complete key: unsigned byte order is the order of the tuples. */
    public byte[] bytes() {
      return full;
    }

    @Override
    public int compareTo(Key other) {
      return Arrays.compareUnsigned(full, other.full);
    }

    @Override
    public boolean equals(Object other) {
      return other instanceof Key k && Arrays.equals(full, k.full);
    }

    @Override
    public int hashCode() {
      return Arrays.hashCode(full);
    }
  }

  private final Field[] fields;
  private final int[] widths; // of the value, without the NULL marker; negative: variable

  private OrderKey(List<Field> fields) {
    this.fields = fields.toArray(Field[]::new);
    this.widths = new int[this.fields.length];
    for (int i = 0; i < widths.length; i++) {
      widths[i] = width(this.fields[i].type());
    }
  }

  /** An encoder for these columns, most significant first. */
  public static OrderKey of(List<Field> fields) {
    return new OrderKey(fields);
  }

  /** An encoder for these columns, most significant first. */
  public static OrderKey of(Field... fields) {
    return new OrderKey(Arrays.asList(fields));
  }

  /** Number of columns. */
  public int size() {
    return fields.length;
  }

  /** The key of these values, one for each column, as in a Row (dates and times also as Integer or Long). */
  public Key encode(Object... values) {
    if (values.length != fields.length) {
      throw new IllegalArgumentException("key of " + fields.length + " columns, got " + values.length);
    }
    Out out = new Out();
    for (int i = 0; i < fields.length; i++) {
      writeField(out, i, values[i]);
    }
    return new Key(out.toByteArray());
  }

  /** The complete key of the values of {@code row} at these ordinals, for callers that store nothing under it. */
  public byte[] bytesAt(Row row, int[] ordinals) {
    Out out = new Out();
    for (int i = 0; i < fields.length; i++) {
      writeField(out, i, row.get(ordinals[i]));
    }
    return out.toByteArray();
  }

  /** The key of the values of {@code row} at these ordinals. */
  public Key encodeAt(Row row, int[] ordinals) {
    Object[] values = new Object[ordinals.length];
    for (int i = 0; i < values.length; i++) {
      values[i] = row.get(ordinals[i]);
    }
    return encode(values);
  }

  /** The values of a key, see {@link #decode(byte[])}. */
  public Object[] decode(Key key) {
    return decode(key.full);
  }

  /**
   * The values of a complete key. Zeros are positive. Dates are Integer days, timestamps and day-time intervals Long
   * micros, times of day Long nanos, year-month intervals Integer months; everything else is as in a Row.
   */
  public Object[] decode(byte[] full) {
    In in = new In(full);
    Object[] values = new Object[fields.length];
    for (int i = 0; i < fields.length; i++) {
      values[i] = readField(in, i);
    }
    return values;
  }

  /** Negative, zero or positive as the first tuple is before, equal to or after the second. */
  public int compare(Object[] a, Object[] b) {
    return encode(a).compareTo(encode(b));
  }

  private void writeField(Out out, int i, Object value) {
    Field f = fields[i];
    if (value == null) {
      out.write(f.nullsFirst() ? NULL_FIRST : NULL_LAST);
      for (int n = 0; n < widths[i]; n++) {
        out.write(0);
      }
      return;
    }
    out.write(VALUE);
    int from = out.size();
    write(out, f.type(), value);
    if (f.desc()) {
      out.invert(from);
    }
  }

  private Object readField(In in, int i) {
    Field f = fields[i];
    if (in.next() != VALUE) {
      in.position += Math.max(widths[i], 0);
      return null;
    }
    in.mask = f.desc() ? 0xFF : 0;
    Object value = read(in, f.type());
    in.mask = 0;
    return value;
  }

  private static int width(DataType t) {
    if (t instanceof BooleanType || t instanceof ByteType) {
      return 1;
    } else if (t instanceof ShortType) {
      return 2;
    } else if (t instanceof IntegerType || t instanceof FloatType || t instanceof DateType
        || t instanceof YearMonthIntervalType) {
      return 4;
    } else if (t instanceof LongType || t instanceof DoubleType || t instanceof TimestampType
        || t instanceof TimestampNTZType || t instanceof DayTimeIntervalType || t instanceof TimeType) {
      return 8;
    } else if (t instanceof DecimalType d) {
      return d.precision() <= 18 ? 8 : 16;
    } else if (t instanceof NullType) {
      return 0;
    } else if (t instanceof StringType || t instanceof CharType || t instanceof VarcharType
        || t instanceof BinaryType || t instanceof VariantType || t instanceof ArrayType || t instanceof StructType
        || t instanceof MapType) {
      return -1;
    }
    throw new IllegalArgumentException("values of type " + t.sql() + " have no order");
  }

  private static void write(Out out, DataType t, Object v) {
    if (t instanceof BooleanType) {
      out.write((Boolean) v ? 1 : 0);
    } else if (t instanceof FloatType) {
      float f = ((Number) v).floatValue();
      int bits = Float.floatToIntBits(f == 0f ? 0f : f);
      out.fixed(bits < 0 ? ~bits : bits ^ Integer.MIN_VALUE, 4);
    } else if (t instanceof DoubleType) {
      double d = ((Number) v).doubleValue();
      long bits = Double.doubleToLongBits(d == 0d ? 0d : d);
      out.fixed(bits < 0 ? ~bits : bits ^ Long.MIN_VALUE, 8);
    } else if (t instanceof DecimalType d) {
      BigInteger unscaled = decimal(v).setScale(d.scale(), RoundingMode.UNNECESSARY).unscaledValue();
      if (d.precision() <= 18) {
        out.fixed(unscaled.longValueExact() ^ Long.MIN_VALUE, 8);
      } else {
        out.fixed(unscaled.shiftRight(64).longValueExact() ^ Long.MIN_VALUE, 8);
        out.fixed(unscaled.longValue(), 8);
      }
    } else if (v instanceof String s) {
      out.variable(s.getBytes(StandardCharsets.UTF_8));
    } else if (v instanceof byte[] b) {
      out.variable(b);
    } else if (v instanceof VariantVal x) {
      out.variable(x.getMetadata());
      out.variable(x.getValue());
    } else if (t instanceof ArrayType a) {
      for (Object e : items(v)) {
        nested(out, a.elementType(), e);
      }
      out.write(0);
    } else if (t instanceof StructType s) {
      Row row = (Row) v;
      for (int i = 0; i < s.size(); i++) {
        nested(out, s.apply(i).dataType(), row.get(i));
      }
    } else if (t instanceof MapType m) {
      List<byte[]> entries = new ArrayList<>();
      for (Map.Entry<?, ?> e : entries(v).entrySet()) {
        Out one = new Out();
        nested(one, m.keyType(), e.getKey());
        nested(one, m.valueType(), e.getValue());
        entries.add(one.toByteArray());
      }
      entries.sort(Arrays::compareUnsigned);
      for (byte[] e : entries) {
        out.write(e, 0, e.length);
      }
      out.write(0);
    } else {
      int width = width(t);
      long sign = 1L << (8 * width - 1);
      out.fixed(integral(v) ^ sign, width);
    }
  }

  private static void nested(Out out, DataType t, Object v) {
    out.write(v == null ? 1 : 2);
    if (v != null) {
      write(out, t, v);
    }
  }

  private static Object nested(In in, DataType t) {
    return in.next() == 2 ? read(in, t) : null;
  }

  private static Object read(In in, DataType t) {
    if (t instanceof BooleanType) {
      return in.next() == 1;
    } else if (t instanceof ByteType) {
      return (byte) (in.fixed(1) ^ 0x80);
    } else if (t instanceof ShortType) {
      return (short) (in.fixed(2) ^ 0x8000);
    } else if (t instanceof FloatType) {
      int bits = (int) in.fixed(4);
      return Float.intBitsToFloat(bits < 0 ? bits ^ Integer.MIN_VALUE : ~bits);
    } else if (t instanceof DoubleType) {
      long bits = in.fixed(8);
      return Double.longBitsToDouble(bits < 0 ? bits ^ Long.MIN_VALUE : ~bits);
    } else if (t instanceof DecimalType d) {
      BigInteger high = BigInteger.valueOf(in.fixed(8) ^ Long.MIN_VALUE);
      if (d.precision() <= 18) {
        return new BigDecimal(high, d.scale());
      }
      BigInteger low = new BigInteger(Long.toUnsignedString(in.fixed(8)));
      return new BigDecimal(high.shiftLeft(64).add(low), d.scale());
    } else if (t instanceof BinaryType) {
      return in.variable();
    } else if (t instanceof VariantType) {
      byte[] metadata = in.variable();
      return new VariantVal(in.variable(), metadata);
    } else if (t instanceof ArrayType a) {
      List<Object> items = new ArrayList<>();
      while (in.peek() != 0) {
        items.add(nested(in, a.elementType()));
      }
      in.next();
      return scala.jdk.javaapi.CollectionConverters.asScala(items).toSeq();
    } else if (t instanceof StructType s) {
      Object[] values = new Object[s.size()];
      for (int i = 0; i < values.length; i++) {
        values[i] = nested(in, s.apply(i).dataType());
      }
      return RowFactory.create(values);
    } else if (t instanceof MapType m) {
      Map<Object, Object> map = new java.util.LinkedHashMap<>();
      while (in.peek() != 0) {
        Object k = nested(in, m.keyType());
        map.put(k, nested(in, m.valueType()));
      }
      in.next();
      return scala.collection.immutable.Map$.MODULE$.from(scala.jdk.javaapi.CollectionConverters.asScala(map));
    } else if (t instanceof NullType) {
      return null;
    }
    int width = width(t);
    if (width < 0) {
      return new String(in.variable(), StandardCharsets.UTF_8);
    } else if (width == 4) {
      return (int) in.fixed(4) ^ Integer.MIN_VALUE;
    }
    return in.fixed(8) ^ Long.MIN_VALUE;
  }

  private static long integral(Object v) {
    if (v instanceof Number n) {
      return n.longValue();
    } else if (v instanceof Timestamp ts) {
      return Math.multiplyExact(Math.floorDiv(ts.getTime(), 1000L), 1_000_000L) + ts.getNanos() / 1000;
    } else if (v instanceof Instant i) {
      return i.getEpochSecond() * 1_000_000L + i.getNano() / 1000;
    } else if (v instanceof LocalDateTime l) {
      return l.toEpochSecond(ZoneOffset.UTC) * 1_000_000L + l.getNano() / 1000;
    } else if (v instanceof Date d) {
      return d.toLocalDate().toEpochDay();
    } else if (v instanceof LocalDate d) {
      return d.toEpochDay();
    } else if (v instanceof LocalTime l) {
      return l.toNanoOfDay();
    } else if (v instanceof Duration d) {
      return d.getSeconds() * 1_000_000L + d.getNano() / 1000;
    } else if (v instanceof Period p) {
      return p.toTotalMonths();
    }
    throw new IllegalArgumentException("no order for a " + v.getClass().getName());
  }

  private static BigDecimal decimal(Object v) {
    if (v instanceof BigDecimal d) {
      return d;
    }
    return v instanceof scala.math.BigDecimal d ? d.bigDecimal() : new BigDecimal(v.toString());
  }

  private static Iterable<?> items(Object v) {
    if (v instanceof scala.collection.Iterable<?> s) {
      return scala.jdk.javaapi.CollectionConverters.asJava(s);
    }
    return v instanceof Object[] a ? Arrays.asList(a) : (Iterable<?>) v;
  }

  private static Map<?, ?> entries(Object v) {
    return v instanceof scala.collection.Map<?, ?> m ? scala.jdk.javaapi.CollectionConverters.asJava(m) : (Map<?, ?>) v;
  }

  /** Builds a key. A 0 terminates a variable-length value, so the bytes 0 and 1 within one are escaped as two bytes. */
  private static final class Out {
    private byte[] bytes = new byte[64];
    private int count;

    int size() {
      return count;
    }

    byte[] toByteArray() {
      return Arrays.copyOf(bytes, count);
    }

    private void reserve(int more) {
      if (count + more > bytes.length) {
        bytes = Arrays.copyOf(bytes, Math.max(2 * bytes.length, count + more));
      }
    }

    void write(int b) {
      reserve(1);
      bytes[count++] = (byte) b;
    }

    void write(byte[] from, int offset, int length) {
      reserve(length);
      System.arraycopy(from, offset, bytes, count, length);
      count += length;
    }

    void fixed(long bits, int width) {
      for (int shift = 8 * (width - 1); shift >= 0; shift -= 8) {
        write((int) (bits >>> shift) & 0xFF);
      }
    }

    void variable(byte[] value) {
      for (byte b : value) {
        if (b == 0 || b == 1) {
          write(1);
          write(b + 1);
        } else {
          write(b);
        }
      }
      write(0);
    }

    void invert(int from) {
      for (int i = from; i < count; i++) {
        bytes[i] = (byte) ~bytes[i];
      }
    }
  }

  private static final class In {
    final byte[] bytes;
    int position;
    int mask;

    In(byte[] bytes) {
      this.bytes = bytes;
    }

    int peek() {
      return (bytes[position] & 0xFF) ^ mask;
    }

    int next() {
      return (bytes[position++] & 0xFF) ^ mask;
    }

    long fixed(int width) {
      long bits = 0;
      for (int i = 0; i < width; i++) {
        bits = bits << 8 | next();
      }
      return bits;
    }

    byte[] variable() {
      ByteArrayOutputStream out = new ByteArrayOutputStream();
      for (int b = next(); b != 0; b = next()) {
        out.write(b == 1 ? next() - 1 : b);
      }
      return out.toByteArray();
    }
  }
}
