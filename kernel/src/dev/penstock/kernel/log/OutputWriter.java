package dev.penstock.kernel.log;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.WriteChannel;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils$;

/** Writes a task's rows of one output as Arrow record-batch messages: inline while there are few, otherwise to a file. */
final class OutputWriter {
  private static final int BATCH_ROWS = 32768;
  private static final int INLINE_BYTES = 1 << 18;

  /** The columns of an output, and their ordinals in the rows. */
  static final class Columns {
    private final StructType schema;
    private final Schema arrow;
    private final int[] ordinals;

    Columns(StructType schema, int[] ordinals) {
      this.schema = schema;
      this.arrow = ArrowUtils$.MODULE$.toArrowSchema(schema, "UTC", false, false, false);
      this.ordinals = ordinals;
    }
  }

  private final int output;
  private final long before;
  private final long epoch;
  private final String folder;
  private final BufferAllocator allocator;
  private final VectorSchemaRoot root;
  private final OutputColumn[] columns;
  private final ByteArrayOutputStream buffer = new ByteArrayOutputStream();
  private final List<long[]> messages = new ArrayList<>();
  private Path path;
  private FileChannel file;
  private long position;
  private int rows;

  /**
   * @param before the watermark that was in force for the rows if they are behind it, otherwise {@link JobTime#NONE}
   * @param folder the folder for files
   */
  OutputWriter(int output, Columns of, long before, long epoch, String folder) {
    this.output = output;
    this.before = before;
    this.epoch = epoch;
    this.folder = folder;
    allocator = ArrowUtils$.MODULE$.rootAllocator().newChildAllocator("penstock-sink", 0, Long.MAX_VALUE);
    root = VectorSchemaRoot.create(of.arrow, allocator);
    List<FieldVector> vectors = root.getFieldVectors();
    columns = new OutputColumn[vectors.size()];
    for (int i = 0; i < columns.length; i++) {
      columns[i] = OutputColumn.of(vectors.get(i), of.schema.apply(i).dataType(), of.ordinals[i]);
    }
  }

  void write(InternalRow row) throws IOException {
    for (OutputColumn column : columns) {
      column.write(row);
    }
    if (++rows >= BATCH_ROWS) {
      flush();
    }
  }

  private void flush() throws IOException {
    for (OutputColumn column : columns) {
      column.finish();
    }
    root.setRowCount(rows);
    long size;
    try (ArrowRecordBatch batch = new VectorUnloader(root).getRecordBatch()) {
      if (file == null && position + batch.computeBodyLength() > INLINE_BYTES) {
        open();
      }
      WriteChannel to = new WriteChannel(file == null ? Channels.newChannel(buffer) : file);
      MessageSerializer.serialize(to, batch);
      size = to.getCurrentPosition();
    }
    for (OutputColumn column : columns) {
      column.reset();
    }
    messages.add(new long[] {position, size, rows});
    position += size;
    rows = 0;
  }

  private void open() throws IOException {
    Files.createDirectories(Path.of(folder));
    path = Path.of(folder, epoch + "-" + output + "-" + UUID.randomUUID() + ".arrow");
    file = FileChannel.open(path, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
    new WriteChannel(file).write(buffer.toByteArray());
    buffer.reset();
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
