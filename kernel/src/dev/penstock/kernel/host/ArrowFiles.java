package dev.penstock.kernel.host;

import java.io.IOException;
import java.io.OutputStream;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.stream.Stream;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorLoader;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.arrow.vector.ipc.ReadChannel;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.arrow.ArrowWriter;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils$;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.util.TaskCompletionListener;

/**
 * The inputs and the result of a one-shot query as Arrow files. Tasks read and write them a batch at a time, so neither has to fit into
 * the driver's heap. Tasks must share a disk with Python.
 */
public final class ArrowFiles {
  private static final long BATCH_BYTES = 4 << 20;
  private static final int BATCH_ROWS = 32768;
  private static final int CHECK_ROWS = 1024;

  private ArrowFiles() {}

  /**
   * Runs a query. Each task that has rows writes one Arrow stream into {@code folder}.
   *
   * @param limit the maximum total size of the files in bytes; a task that exceeds it fails with {@link ResultTooLarge}
   * @return the names of the files in the order of the result, one per line
   */
  public static String write(Dataset<Row> query, String folder, long limit) {
    Writer writer = new Writer(query.schema(), folder, limit);
    JavaRDD<InternalRow> rows = query.queryExecution().toRdd().toJavaRDD();
    return String.join("\n", rows.mapPartitionsWithIndex(writer::write, false).collect());
  }

  /**
   * The rows of a file of record-batch messages.
   *
   * @param offsets the offset of each message, one per line
   */
  public static Dataset<Row> read(SparkSession session, String path, String offsets, String schema) {
    List<Long> all = offsets.lines().map(Long::valueOf).toList();
    StructType type = (StructType) DataType.fromJson(schema);
    Reader reader = new Reader(path, type);
    JavaSparkContext context = JavaSparkContext.fromSparkContext(session.sparkContext());
    int tasks = Math.min(all.size(), context.defaultParallelism());
    JavaRDD<InternalRow> rows = context.parallelize(all, tasks).mapPartitions(reader::read);
    return session.internalCreateDataFrame(rows.rdd(), type, false);
  }

  private static final class Writer implements Serializable {
    private static final long serialVersionUID = 1L;
    private final StructType schema;
    private final String folder;
    private final long limit;

    Writer(StructType schema, String folder, long limit) {
      this.schema = schema;
      this.folder = folder;
      this.limit = limit;
    }

    Iterator<String> write(int partition, Iterator<InternalRow> rows) throws IOException {
      if (!rows.hasNext()) {
        return Collections.emptyIterator();
      }
      TaskContext task = TaskContext.get();
      String name = partition + "-" + task.taskAttemptId() + ".arrow";
      try (BufferAllocator allocator =
              ArrowUtils$.MODULE$.rootAllocator().newChildAllocator("penstock-result", 0, Long.MAX_VALUE);
          VectorSchemaRoot root =
              VectorSchemaRoot.create(
                  ArrowUtils$.MODULE$.toArrowSchema(schema, "UTC", true, false, false), allocator);
          OutputStream out = Files.newOutputStream(Path.of(folder, name), StandardOpenOption.CREATE_NEW);
          ArrowStreamWriter stream = new ArrowStreamWriter(root, null, Channels.newChannel(out))) {
        ArrowWriter writer = ArrowWriter.create(root);
        stream.start();
        int count = 0;
        int check = 1;
        while (rows.hasNext()) {
          writer.write(rows.next());
          if (++count < check) {
            continue;
          }
          task.killTaskIfInterrupted();
          long size = writer.sizeInBytes();
          if (size >= BATCH_BYTES || count >= BATCH_ROWS) {
            flush(writer, stream);
            count = 0;
            check = 1;
          } else {
            // Summing the column sizes costs as much as a row or two, and a batch of wide rows must not exceed its limit by much.
            long fit = (BATCH_BYTES - size) / Math.max(1, size / count);
            check = count + (int) Math.max(1, Math.min(CHECK_ROWS, fit / 2));
          }
        }
        if (count > 0) {
          flush(writer, stream);
        }
        stream.end();
      }
      return List.of(name).iterator();
    }

    private void flush(ArrowWriter writer, ArrowStreamWriter stream) throws IOException {
      writer.finish();
      stream.writeBatch();
      writer.reset();
      if (written() > limit) {
        throw new ResultTooLarge(limit);
      }
    }

    /** The total size of the query's files, written by any task or process. */
    private long written() throws IOException {
      try (Stream<Path> files = Files.list(Path.of(folder))) {
        return files.mapToLong(f -> f.toFile().length()).sum();
      }
    }
  }
  private static final class Reader implements Serializable {
    private static final long serialVersionUID = 1L;
    private final String path;
    private final StructType schema;

    Reader(String path, StructType schema) {
      this.path = path;
      this.schema = schema;
    }

    Iterator<InternalRow> read(Iterator<Long> offsets) throws IOException {
      Batches batches = new Batches(offsets);
      TaskContext.get().addTaskCompletionListener((TaskCompletionListener) ended -> batches.close());
      return batches;
    }

    /** Holds one batch in memory at a time; Spark's own reader holds all batches of a task. */
    private final class Batches implements Iterator<InternalRow> {
      private final Iterator<Long> offsets;
      private final FileChannel file = FileChannel.open(Path.of(path), StandardOpenOption.READ);
      private final BufferAllocator allocator =
          ArrowUtils$.MODULE$.rootAllocator().newChildAllocator("penstock-input", 0, Long.MAX_VALUE);
      private final VectorSchemaRoot root =
          VectorSchemaRoot.create(ArrowUtils$.MODULE$.toArrowSchema(schema, "UTC", true, false, false), allocator);
      private final UnsafeProjection copy = UnsafeProjection.create(schema);
      private Iterator<InternalRow> rows = Collections.emptyIterator();

      Batches(Iterator<Long> offsets) throws IOException {
        this.offsets = offsets;
      }

      @Override
      public boolean hasNext() {
        while (!rows.hasNext() && offsets.hasNext()) {
          load(offsets.next());
        }
        return rows.hasNext();
      }

      @Override
      public InternalRow next() {
        if (!hasNext()) {
          throw new NoSuchElementException();
        }
        return rows.next();
      }

      private void load(long offset) {
        try {
          file.position(offset);
          try (ArrowRecordBatch batch = MessageSerializer.deserializeRecordBatch(new ReadChannel(file), allocator)) {
            new VectorLoader(root).load(batch);
          }
        } catch (IOException e) {
          throw new UncheckedIOException(e);
        }
        ColumnVector[] columns = root.getFieldVectors().stream().map(ArrowColumnVector::new).toArray(ColumnVector[]::new);
        Iterator<InternalRow> stored = new ColumnarBatch(columns, root.getRowCount()).rowIterator();
        // Generated code reads array elements in place, and Arrow refuses to read a NULL.
        rows = scala.jdk.javaapi.CollectionConverters.asJava(
            scala.jdk.javaapi.CollectionConverters.asScala(stored).map(row -> (InternalRow) copy.apply(row)));
      }

      void close() {
        root.close();
        allocator.close();
        try {
          file.close();
        } catch (IOException e) {
          throw new UncheckedIOException(e);
        }
      }
    }
  }
}
