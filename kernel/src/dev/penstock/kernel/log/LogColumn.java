package dev.penstock.kernel.log;

import org.apache.arrow.vector.BaseFixedWidthVector;
import org.apache.arrow.vector.BitVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * An Arrow vector of numbers, times or strings, read in place. {@link ArrowColumnVector} goes through an accessor and Arrow's checks for
 * every value, which the JIT compiler cannot inline once it has seen several types; all other types still use it. The vector owns the memory.
 */
final class LogColumn extends ColumnVector {
  private final long values;
  private final long offsets;
  private final long validity;
  private final int nulls;

  private LogColumn(DataType type, FieldVector vector, long offsets) {
    super(type);
    this.values = vector.getDataBuffer().memoryAddress();
    this.offsets = offsets;
    this.validity = vector.getValidityBuffer().memoryAddress();
    this.nulls = vector.getNullCount();
  }

  static ColumnVector of(DataType type, FieldVector vector) {
    if (vector instanceof BaseFixedWidthVector fixed && !(vector instanceof BitVector) && plain(type)) {
      // With another width, reads would hit neighbouring values.
      if (fixed.getTypeWidth() != type.defaultSize()) {
        throw new IllegalStateException("A column of type " + type.sql() + " has values of " + fixed.getTypeWidth() + " bytes.");
      }
      return new LogColumn(type, vector, 0);
    }
    if (vector instanceof VarCharVector && type instanceof StringType) {
      return new LogColumn(type, vector, vector.getOffsetBuffer().memoryAddress());
    }
    return new ArrowColumnVector(vector);
  }

  /** Whether values are numbers in memory, of the type's width. */
  static boolean plain(DataType t) {
    return t instanceof LongType || t instanceof TimestampType || t instanceof TimestampNTZType || t instanceof IntegerType
        || t instanceof DateType || t instanceof DoubleType || t instanceof FloatType || t instanceof ShortType
        || t instanceof ByteType;
  }

  @Override
  public void close() {}

  @Override
  public boolean hasNull() {
    return nulls > 0;
  }

  @Override
  public int numNulls() {
    return nulls;
  }

  @Override
  public boolean isNullAt(int row) {
    return nulls > 0 && (Platform.getByte(null, validity + (row >> 3)) & (1 << (row & 7))) == 0;
  }

  @Override
  public byte getByte(int row) {
    return Platform.getByte(null, values + row);
  }

  @Override
  public short getShort(int row) {
    return Platform.getShort(null, values + 2L * row);
  }

  @Override
  public int getInt(int row) {
    return Platform.getInt(null, values + 4L * row);
  }

  @Override
  public long getLong(int row) {
    return Platform.getLong(null, values + 8L * row);
  }

  @Override
  public float getFloat(int row) {
    return Platform.getFloat(null, values + 4L * row);
  }

  @Override
  public double getDouble(int row) {
    return Platform.getDouble(null, values + 8L * row);
  }

  @Override
  public UTF8String getUTF8String(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int start = Platform.getInt(null, offsets + 4L * row);
    int end = Platform.getInt(null, offsets + 4L * row + 4);
    return UTF8String.fromAddress(null, values + start, end - start);
  }

  // `of` leaves columns of the other types to ArrowColumnVector.

  @Override
  public boolean getBoolean(int row) {
    throw notOfThisType("BOOLEAN");
  }

  @Override
  public ColumnarArray getArray(int row) {
    throw notOfThisType("ARRAY");
  }

  @Override
  public ColumnarMap getMap(int row) {
    throw notOfThisType("MAP");
  }

  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    throw notOfThisType("DECIMAL");
  }

  @Override
  public byte[] getBinary(int row) {
    throw notOfThisType("BINARY");
  }

  @Override
  public ColumnVector getChild(int ordinal) {
    throw notOfThisType("STRUCT");
  }

  private IllegalStateException notOfThisType(String asked) {
    return new IllegalStateException("A column of type " + dataType().sql() + " is read as " + asked + ".");
  }
}
