package dev.penstock.kernel.log;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.channels.Channels;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.WriteChannel;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.execution.arrow.ArrowWriter;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils$;

/**
 * Writes a task's rows as Arrow record-batch messages, per output, rows behind the watermark apart from the others; a task without rows writes
 * nothing.
 */
final class LogWriterFactory implements StreamingDataWriterFactory {
  private static final long serialVersionUID = 1L;
  private static final int BATCH_ROWS = 32768;
  private static final int INLINE_BYTES = 1 << 18;

  private final StructType schema;
  private final int[][] outputs;
  private final int[] befores;
  private final String folder;
  /** The schemas of packed rows by slot, as JSON; null: rows are not packed. */
  private final HashMap<Integer, String> packed;

  LogWriterFactory(
      StructType schema, int[][] outputs, int[] befores, String folder, Map<Integer, String> packed) {
    this.packed = packed == null ? null : new HashMap<>(packed);
    this.schema = schema;
    this.outputs = outputs;
    this.befores = befores;
    this.folder = folder;
  }

  static final class Written implements WriterCommitMessage {
    private static final long serialVersionUID = 1L;
    final ArrayList<EpochPart> parts;

    Written(List<EpochPart> parts) {
      this.parts = new ArrayList<>(parts);
    }
  }

  @Override
  public DataWriter<InternalRow> createWriter(int partitionId, long taskId, long epochId) {
    return new TaskWriter(epochId);
  }

  private final class TaskWriter implements DataWriter<InternalRow> {
    private final long epoch;
    private final boolean several = schema.fields()[schema.size() - 1].dataType() instanceof ArrayType;
    private final OutputWriter[] writers = new OutputWriter[outputs.length];
    /** For packed rows, by slot. */
    private final Map<Integer, OutputWriter> slots = new LinkedHashMap<>();
    /** For rows behind the watermark, by output and watermark. */
    private final Map<List<Long>, OutputWriter> late = new LinkedHashMap<>();

    TaskWriter(long epoch) {
      this.epoch = epoch;
    }

    @Override
    public void write(InternalRow row) throws IOException {
      if (packed != null) {
        unpack(row.getInt(0), row.getBinary(1));
      } else if (outputs.length == 1) {
        write(0, row);
      } else if (several) {
        ArrayData outs = row.getArray(schema.size() - 1);
        for (int i = 0; i < outputs.length; i++) {
          if (outs.getBoolean(i)) {
            write(i, row);
          }
        }
      } else {
        write(row.getInt(schema.size() - 1), row);
      }
    }

    /** Rows of a slot that is no member any more are nobody's. */
    private void unpack(int slot, byte[] bytes) throws IOException {
      OutputWriter writer = slots.get(slot);
      if (writer == null) {
        String own = packed.get(slot);
        if (own == null) {
          return;
        }
        writer = new OutputWriter(slot, epoch, (StructType) DataType.fromJson(own));
        slots.put(slot, writer);
      }
      writer.write(bytes);
    }

    private void write(int out, InternalRow row) throws IOException {
      int at = befores[out];
      if (at >= 0 && !row.isNullAt(at)) {
        long before = row.getLong(at);
        late.computeIfAbsent(List.of((long) out, before), key -> new OutputWriter(out, before, epoch)).write(row);
        return;
      }
      if (writers[out] == null) {
        writers[out] = new OutputWriter(out, JobTime.NONE, epoch);
      }
      writers[out].write(row);
    }

    private List<OutputWriter> all() {
      List<OutputWriter> all = new ArrayList<>(late.values());
      all.addAll(slots.values());
      for (OutputWriter w : writers) {
        if (w != null) {
          all.add(w);
        }
      }
      return all;
    }

    @Override
    public WriterCommitMessage commit() throws IOException {
      List<EpochPart> parts = new ArrayList<>();
      for (OutputWriter w : all()) {
        parts.add(w.finish());
      }
      return new Written(parts);
    }

    @Override
    public void abort() throws IOException {
      for (OutputWriter w : all()) {
        w.discard();
      }
    }

    @Override
    public void close() {
      for (OutputWriter w : all()) {
        w.close();
      }
    }
  }

  private final class OutputWriter {
    private final int output;
    private final long before;
    private final long epoch;
    private final int[] columns;
    private final DataType[] types;
    private final boolean whole;
    private final BufferAllocator allocator;
    private final VectorSchemaRoot root;
    private final ArrowWriter arrow;
    private final UnsafeRow row;
    private final ByteArrayOutputStream buffer = new ByteArrayOutputStream();
    private final List<long[]> messages = new ArrayList<>();
    private Path path;
    private OutputStream file;
    private long position;
    private int rows;

    OutputWriter(int output, long before, long epoch) {
      this.output = output;
      this.before = before;
      this.epoch = epoch;
      columns = outputs[output];
      row = null;
      types = new DataType[columns.length];
      StructField[] fields = new StructField[columns.length];
      boolean same = outputs.length == 1 && columns.length == schema.size();
      for (int i = 0; i < columns.length; i++) {
        fields[i] = schema.fields()[columns[i]];
        types[i] = fields[i].dataType();
        same &= columns[i] == i;
      }
      whole = same;
      allocator = allocator();
      root = root(new StructType(fields), allocator);
      arrow = ArrowWriter.create(root);
    }

    /** For packed rows of a slot. */
    OutputWriter(int slot, long epoch, StructType schema) {
      this.output = slot;
      this.before = JobTime.NONE;
      this.epoch = epoch;
      columns = null;
      types = null;
      whole = true;
      row = new UnsafeRow(schema.size());
      allocator = allocator();
      root = root(schema, allocator);
      arrow = ArrowWriter.create(root);
    }

    private static BufferAllocator allocator() {
      return ArrowUtils$.MODULE$.rootAllocator().newChildAllocator("penstock-sink", 0, Long.MAX_VALUE);
    }

    private static VectorSchemaRoot root(StructType schema, BufferAllocator allocator) {
      return VectorSchemaRoot.create(
          ArrowUtils$.MODULE$.toArrowSchema(schema, "UTC", false, false, false), allocator);
    }

    void write(byte[] packedRow) throws IOException {
      row.pointTo(packedRow, packedRow.length);
      write(row);
    }

    void write(InternalRow row) throws IOException {
      if (whole) {
        arrow.write(row);
      } else {
        Object[] values = new Object[columns.length];
        for (int i = 0; i < values.length; i++) {
          values[i] = row.isNullAt(columns[i]) ? null : row.get(columns[i], types[i]);
        }
        arrow.write(new GenericInternalRow(values));
      }
      if (++rows >= BATCH_ROWS) {
        flush();
      }
    }

    private void flush() throws IOException {
      arrow.finish();
      ByteArrayOutputStream message = new ByteArrayOutputStream();
      try (ArrowRecordBatch batch = new VectorUnloader(root).getRecordBatch()) {
        MessageSerializer.serialize(new WriteChannel(Channels.newChannel(message)), batch);
      }
      arrow.reset();
      messages.add(new long[] {position, message.size(), rows});
      position += message.size();
      rows = 0;
      if (file == null && position > INLINE_BYTES) {
        Files.createDirectories(Path.of(folder));
        path = Path.of(folder, epoch + "-" + output + "-" + UUID.randomUUID() + ".arrow");
        file = Files.newOutputStream(path);
        buffer.writeTo(file);
        buffer.reset();
      }
      message.writeTo(file == null ? buffer : file);
    }

    EpochPart finish() throws IOException {
      if (rows > 0) {
        flush();
      }
      if (file != null) {
        file.close();
      }
      return new EpochPart(
          output, before, path == null ? null : path.toString(), path == null ? buffer.toByteArray() : null,
          messages.toArray(new long[0][]));
    }

    void discard() throws IOException {
      if (file != null) {
        file.close();
        Files.deleteIfExists(path);
      }
    }

    void close() {
      root.close();
      allocator.close();
    }
  }
}
