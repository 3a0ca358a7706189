package dev.penstock.kernel.log;

import dev.penstock.kernel.state.Damaged;
import dev.penstock.kernel.state.EventTime;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.zip.CRC32C;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorLoader;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils$;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Reads log slices as columnar batches; columns that a slice does not have (added later) are NULL. */
final class LogReaderFactory implements PartitionReaderFactory {
  private static final long serialVersionUID = 1L;

  private final StructType full;
  private final StructType required;
  private final int columns;

  LogReaderFactory(StructType full, StructType required, int columns) {
    this.full = full;
    this.required = required;
    this.columns = columns;
  }

  @Override
  public boolean supportColumnarReads(InputPartition partition) {
    return true;
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    throw new UnsupportedOperationException("the log is read in columns");
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    return new Reader((LogPartition) partition);
  }

  private final class Reader implements PartitionReader<ColumnarBatch> {
    private final LogPartition partition;
    private final BufferAllocator allocator;
    private int next;
    private FileChannel file;
    private String path;
    private Schema stored;
    private VectorSchemaRoot root;
    private ColumnarBatch batch;

    Reader(LogPartition partition) {
      this.partition = partition;
      this.allocator = ArrowUtils$.MODULE$.rootAllocator().newChildAllocator("penstock-log", 0, Long.MAX_VALUE);
    }

    @Override
    public boolean next() throws IOException {
      release();
      if (partition.slices.isEmpty()) {
        if (next++ > 0) {
          return false;
        }
        batch = heartbeat();
        return true;
      }
      if (next >= partition.slices.size()) {
        return false;
      }
      batch = read(partition.slices.get(next++));
      return true;
    }

    private ColumnarBatch read(LogSlice slice) throws IOException {
      if (!slice.path.equals(path)) {
        closeFile();
        try {
          file = FileChannel.open(Path.of(slice.path), StandardOpenOption.READ);
        } catch (NoSuchFileException e) {
          throw damaged(slice);
        }
        path = slice.path;
      }
      ArrowBuf message = message(slice);
      if (stored == null || stored.getFields().size() != slice.columns) {
        List<Field> all = ArrowUtils$.MODULE$.toArrowSchema(full, "UTC", true, false, false).getFields();
        stored = new Schema(all.subList(0, slice.columns));
      }
      root = VectorSchemaRoot.create(stored, allocator);
      try (ArrowRecordBatch rows = batch(message)) {
        new VectorLoader(root).load(rows);
      }
      int rows = root.getRowCount();
      ColumnVector[] vectors = new ColumnVector[required.size()];
      for (int i = 0; i < vectors.length; i++) {
        StructField f = required.fields()[i];
        int at = full.fieldIndex(f.name());
        vectors[i] = at < slice.columns ? LogColumn.of(f.dataType(), root.getVector(at)) : constant(f, at, rows, slice);
      }
      return new ColumnarBatch(vectors, rows);
    }

    /** The bytes of a slice, in memory that vectors can own, verified before they are parsed. */
    private ArrowBuf message(LogSlice slice) throws IOException {
      ArrowBuf message = allocator.buffer(slice.length);
      boolean whole = false;
      try {
        ByteBuffer bytes = message.nioBuffer(0, slice.length);
        long at = slice.offset;
        while (bytes.hasRemaining()) {
          int read = file.read(bytes, at);
          if (read < 0) {
            throw damaged(slice);
          }
          at += read;
        }
        bytes.flip();
        if (slice.check != LogSlice.UNCHECKED) {
          CRC32C sum = new CRC32C();
          sum.update(bytes);
          if (sum.getValue() != slice.check) {
            throw damaged(slice);
          }
        }
        whole = true;
        return message;
      } finally {
        if (!whole) {
          message.close();
        }
      }
    }

    /** Parses a message: marker, length of the header, header, buffers. The batch owns the memory. */
    private static ArrowRecordBatch batch(ArrowBuf message) throws IOException {
      boolean read = false;
      try {
        boolean marked = message.getInt(0) == MessageSerializer.IPC_CONTINUATION_TOKEN;
        int at = marked ? 2 * Integer.BYTES : Integer.BYTES;
        int length = message.getInt(at - Integer.BYTES);
        Message head = Message.getRootAsMessage(message.nioBuffer(at, length));
        long body = at + length;
        ArrowRecordBatch rows = MessageSerializer.deserializeRecordBatch(head, message.slice(body, message.capacity() - body));
        read = true;
        return rows;
      } finally {
        if (!read) {
          message.close();
        }
      }
    }

    private static Damaged damaged(LogSlice slice) {
      return new Damaged(slice.path, slice.offset, slice.rows, slice.lsn);
    }

    private ColumnarBatch heartbeat() {
      ColumnVector[] vectors = new ColumnVector[required.size()];
      for (int i = 0; i < vectors.length; i++) {
        StructField f = required.fields()[i];
        vectors[i] = constant(f, full.fieldIndex(f.name()), 1, null);
      }
      return new ColumnarBatch(vectors, 1);
    }

    /** A column that is not stored; {@code slice} is null for a heartbeat. */
    private ColumnVector constant(StructField f, int at, int rows, LogSlice slice) {
      ConstantColumnVector v = new ConstantColumnVector(rows, f.dataType());
      if (at < columns) {
        v.setNull();
        return v;
      }
      v.setNotNull();
      switch (f.name()) {
        case "__wm":
          v.setLong(EventTime.shifted(partition.wmAfter) * 1000);
          break;
        case "__pwm":
          // Earlier than every row, but small enough to convert to microseconds.
          v.setLong(Math.max(slice == null ? JobTime.NONE : slice.before, -9_000_000_000_000_000L));
          break;
        case "__hb":
          v.setBoolean(slice == null);
          break;
        case "__to":
          v.setInt(slice == null ? 0 : slice.to);
          break;
        case "__lsn":
          v.setLong(slice == null ? 0 : slice.lsn);
          break;
        default:
          throw new IllegalStateException("unknown hidden column " + f.name());
      }
      return v;
    }

    @Override
    public ColumnarBatch get() {
      return batch;
    }

    private void release() {
      batch = null;
      if (root != null) {
        root.close();
        root = null;
      }
    }

    private void closeFile() throws IOException {
      if (file != null) {
        file.close();
        file = null;
      }
    }

    @Override
    public void close() throws IOException {
      release();
      closeFile();
      allocator.close();
    }
  }
}
