package dev.penstock.kernel.row;

import java.io.Serializable;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.CatalystTypeConverters;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import scala.Function1;

/** Converts rows between wire form (see {@link Wire}), Spark's internal form, and the bytes of the latter. For one thread. */
public final class RowCodec implements Serializable {
  private static final long serialVersionUID = 1L;

  private final StructType schema;
  private transient DataType[] types;
  private transient Function1<Object, Object>[] in;
  private transient Getter[] out;
  private transient UnsafeProjection pack;
  private transient UnsafeRow view;

  public RowCodec(StructType schema) {
    this.schema = schema;
  }

  @SuppressWarnings("unchecked")
  private void prepare() {
    if (types != null) {
      return;
    }
    int n = schema.size();
    types = new DataType[n];
    in = new Function1[n];
    out = new Getter[n];
    for (int i = 0; i < n; i++) {
      types[i] = schema.apply(i).dataType();
      in[i] = CatalystTypeConverters.createToCatalystConverter(types[i]);
      out[i] = getter(i, types[i]);
    }
    pack = UnsafeProjection.create(schema);
    view = new UnsafeRow(n);
  }

  /** Reads a value that is not NULL. */
  private interface Getter {
    Object get(InternalRow row);
  }

  /** A reader for a type. Spark's generic accessor dispatches on the type for every value. */
  private static Getter getter(int i, DataType type) {
    if (type instanceof LongType) {
      return row -> row.getLong(i);
    } else if (type instanceof IntegerType) {
      return row -> row.getInt(i);
    } else if (type instanceof DoubleType) {
      return row -> row.getDouble(i);
    } else if (type instanceof BooleanType) {
      return row -> row.getBoolean(i);
    } else if (type instanceof BinaryType) {
      return row -> row.getBinary(i);
    } else if (type.equals(DataTypes.StringType)) {
      return row -> row.getUTF8String(i).toString();
    }
    Function1<Object, Object> convert = CatalystTypeConverters.createToScalaConverter(type);
    return row -> convert.apply(row.get(i, type));
  }

  /** The values of a row from ordinal {@code first}, in Spark's internal form. */
  public InternalRow internal(Row row, int first) {
    prepare();
    Object[] values = new Object[types.length];
    for (int i = 0; i < values.length; i++) {
      values[i] = in[i].apply(row.get(first + i));
    }
    return new GenericInternalRow(values);
  }

  /** The bytes of the values from ordinal {@code first}. */
  public byte[] bytes(Row row, int first) {
    return copy(pack(row, first), 0);
  }

  private UnsafeRow pack(Row row, int first) {
    InternalRow internal = internal(row, first);
    return pack.apply(internal);
  }

  /** The bytes of a row, after {@code room} free bytes. */
  public static byte[] copy(UnsafeRow row, int room) {
    byte[] bytes = new byte[room + row.getSizeInBytes()];
    row.writeToMemory(bytes, Platform.BYTE_ARRAY_OFFSET + room);
    return bytes;
  }

  /** The bytes of the leading values, after a hash of them: Spark sorts by the first eight bytes, which in a row are only its null bits. */
  public byte[] key(Row row) {
    byte[] bytes = copy(pack(row, 0), Long.BYTES);
    long hash = XXH64.hashUnsafeBytes(bytes, Platform.BYTE_ARRAY_OFFSET + Long.BYTES, bytes.length - Long.BYTES, 0);
    Platform.putLong(bytes, Platform.BYTE_ARRAY_OFFSET, hash);
    return bytes;
  }

  /** The row of a {@link #key}. */
  public Row ofKey(byte[] bytes) {
    prepare();
    view.pointTo(bytes, Platform.BYTE_ARRAY_OFFSET + Long.BYTES, bytes.length - Long.BYTES);
    return row(view);
  }

  public byte[] bytes(Row row) {
    return bytes(row, 0);
  }

  /** Writes the values of a row in Spark's internal form to {@code into}, from index {@code at}. */
  public void values(InternalRow row, Object[] into, int at) {
    prepare();
    for (int i = 0; i < types.length; i++) {
      into[at + i] = row.isNullAt(i) ? null : out[i].get(row);
    }
  }

  /** Writes the values of packed bytes to {@code into}, from index {@code at}. */
  public void values(byte[] bytes, Object[] into, int at) {
    prepare();
    view.pointTo(bytes, bytes.length);
    values(view, into, at);
  }

  public Row row(InternalRow row) {
    Object[] values = new Object[schema.size()];
    values(row, values, 0);
    return RowFactory.create(values);
  }

  public Row row(byte[] bytes) {
    Object[] values = new Object[schema.size()];
    values(bytes, values, 0);
    return RowFactory.create(values);
  }

  public int size() {
    return schema.size();
  }
}
