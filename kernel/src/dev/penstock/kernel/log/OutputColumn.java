package dev.penstock.kernel.log;

import org.apache.arrow.vector.BaseFixedWidthVector;
import org.apache.arrow.vector.BaseVariableWidthVector;
import org.apache.arrow.vector.BitVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.arrow.ArrowFieldWriter;
import org.apache.spark.sql.execution.arrow.ArrowWriter$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * One column of an output, the counterpart of {@link LogColumn}: numbers, times and strings are written into the vector's memory. Spark's writers check bounds and
 * references of Arrow's buffers for every value, which takes longer than all other work of a filter on a row; all other types still use them.
 */
abstract class OutputColumn {
  private static final int FIRST_ROWS = 256;

  /** The column that writes this ordinal of the rows to a vector. */
  static OutputColumn of(FieldVector vector, DataType type, int ordinal) {
    if (vector instanceof BaseFixedWidthVector fixed && !(vector instanceof BitVector) && LogColumn.plain(type)
        && fixed.getTypeWidth() == type.defaultSize()) {
      return switch (fixed.getTypeWidth()) {
        case Long.BYTES -> new Longs(fixed, ordinal);
        case Integer.BYTES -> new Ints(fixed, ordinal);
        default -> new Other(vector, ordinal);
      };
    }
    if (vector instanceof VarCharVector strings && type instanceof StringType) {
      return new Strings(strings, ordinal);
    }
    return new Other(vector, ordinal);
  }

  abstract void write(InternalRow row);

  /** Completes the vector with the rows written. */
  abstract void finish();

  /** Restarts without rows. */
  abstract void reset();

  /** A column with one validity bit per row. Rows that were not written are NULL. */
  private abstract static class Direct extends OutputColumn {
    final int ordinal;
    int rows;
    int capacity;
    private long validity;
    /** The bits of the last rows, not written to the vector yet. */
    private int bits;

    Direct(int ordinal) {
      this.ordinal = ordinal;
    }

    /** Sets the address of the validity bits, and the capacity of the vector in rows. */
    final void at(long newValidity, int more) {
      validity = newValidity;
      capacity = more;
    }

    abstract void grow();

    /** Adds a row, with a value or NULL. */
    final void next(boolean present) {
      int bit = rows & 7;
      if (present) {
        bits |= 1 << bit;
      }
      if (bit == 7) {
        flush();
      }
      rows++;
    }

    private void flush() {
      Platform.putByte(null, validity + (rows >> 3), (byte) bits);
      bits = 0;
    }

    @Override
    void finish() {
      if ((rows & 7) != 0) {
        flush();
      }
    }

    @Override
    void reset() {
      rows = 0;
      bits = 0;
    }
  }

  /** Values of a fixed width. */
  private abstract static class Fixed extends Direct {
    private final BaseFixedWidthVector vector;
    long values;

    Fixed(BaseFixedWidthVector vector, int ordinal) {
      super(ordinal);
      this.vector = vector;
      vector.allocateNew(FIRST_ROWS);
      locate();
    }

    private void locate() {
      values = vector.getDataBufferAddress();
      at(vector.getValidityBufferAddress(), vector.getValueCapacity());
    }

    @Override
    final void grow() {
      vector.reAlloc();
      locate();
    }

    @Override
    final void finish() {
      super.finish();
      vector.setValueCount(rows);
    }

    @Override
    final void reset() {
      super.reset();
      vector.reset();
    }
  }

  private static final class Longs extends Fixed {
    private final boolean doubles;

    Longs(BaseFixedWidthVector vector, int ordinal) {
      super(vector, ordinal);
      doubles = vector instanceof org.apache.arrow.vector.Float8Vector;
    }

    @Override
    void write(InternalRow row) {
      if (rows == capacity) {
        grow();
      }
      boolean present = !row.isNullAt(ordinal);
      if (present) {
        long to = values + 8L * rows;
        if (doubles) {
          Platform.putDouble(null, to, row.getDouble(ordinal));
        } else {
          Platform.putLong(null, to, row.getLong(ordinal));
        }
      }
      next(present);
    }
  }

  private static final class Ints extends Fixed {
    private final boolean floats;

    Ints(BaseFixedWidthVector vector, int ordinal) {
      super(vector, ordinal);
      floats = vector instanceof org.apache.arrow.vector.Float4Vector;
    }

    @Override
    void write(InternalRow row) {
      if (rows == capacity) {
        grow();
      }
      boolean present = !row.isNullAt(ordinal);
      if (present) {
        long to = values + 4L * rows;
        if (floats) {
          Platform.putFloat(null, to, row.getFloat(ordinal));
        } else {
          Platform.putInt(null, to, row.getInt(ordinal));
        }
      }
      next(present);
    }
  }

  private static final class Strings extends Direct {
    private final BaseVariableWidthVector vector;
    private long offsets;
    private long data;
    private long room;
    private long end;

    Strings(BaseVariableWidthVector vector, int ordinal) {
      super(ordinal);
      this.vector = vector;
      vector.allocateNew(8L * FIRST_ROWS, FIRST_ROWS);
      locate();
    }

    private void locate() {
      offsets = vector.getOffsetBufferAddress();
      data = vector.getDataBufferAddress();
      room = vector.getDataBuffer().capacity();
      at(vector.getValidityBufferAddress(), (int) Math.min(
          8 * vector.getValidityBuffer().capacity(), vector.getOffsetBuffer().capacity() / Integer.BYTES - 1));
    }

    @Override
    void grow() {
      vector.reallocValidityAndOffsetBuffers();
      locate();
    }

    @Override
    void write(InternalRow row) {
      if (rows == capacity) {
        grow();
      }
      boolean present = !row.isNullAt(ordinal);
      if (present) {
        UTF8String text = row.getUTF8String(ordinal);
        int length = text.numBytes();
        if (end + length > room) {
          vector.reallocDataBuffer(Math.max(end + length, 2 * room));
          locate();
        }
        text.writeToMemory(null, data + end);
        end += length;
      }
      // Arrow rejects a buffer of this size before its offsets overflow.
      Platform.putInt(null, offsets + 4L * (rows + 1), (int) end);
      next(present);
    }

    @Override
    void finish() {
      super.finish();
      vector.setLastSet(rows - 1);
      vector.setValueCount(rows);
    }

    @Override
    void reset() {
      super.reset();
      end = 0;
      vector.reset();
    }
  }

  /** Everything else, as Spark writes it. */
  private static final class Other extends OutputColumn {
    private final ArrowFieldWriter writer;
    private final int ordinal;

    Other(FieldVector vector, int ordinal) {
      vector.allocateNew();
      writer = ArrowWriter$.MODULE$.createFieldWriter(vector);
      this.ordinal = ordinal;
    }

    @Override
    void write(InternalRow row) {
      writer.write(row, ordinal);
    }

    @Override
    void finish() {
      writer.finish();
    }

    @Override
    void reset() {
      writer.reset();
    }
  }
}
