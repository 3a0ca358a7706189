package dev.penstock.kernel.log;

import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Writes a task's rows as Arrow record-batch messages, separately for each output and for rows behind the watermark; a task without rows writes
 * nothing.
 */
final class LogWriterFactory implements StreamingDataWriterFactory {
  private static final long serialVersionUID = 1L;

  private final StructType schema;
  private final int[][] outputs;
  private final int[] befores;
  private final String folder;

  LogWriterFactory(StructType schema, int[][] outputs, int[] befores, String folder) {
    this.schema = schema;
    this.outputs = outputs;
    this.befores = befores;
    this.folder = folder;
  }

  @Override
  public DataWriter<InternalRow> createWriter(int partitionId, long taskId, long epochId) {
    return new TaskWriter(epochId);
  }

  /** The columns of one output. */
  private final class Output {
    private final int number;
    private final OutputWriter.Columns columns;

    Output(int number) {
      this.number = number;
      int[] places = outputs[number];
      StructField[] fields = new StructField[places.length];
      for (int i = 0; i < places.length; i++) {
        fields[i] = schema.fields()[places[i]];
      }
      columns = new OutputWriter.Columns(new StructType(fields), places);
    }

    OutputWriter writer(long before, long epoch) {
      return new OutputWriter(number, columns, before, epoch, folder);
    }
  }

  private final class TaskWriter implements DataWriter<InternalRow> {
    private final long epoch;
    private final Output[] known = new Output[outputs.length];
    private final OutputWriter[] writers = new OutputWriter[outputs.length];
    /** Writers for rows behind the watermark, by output and watermark. */
    private final Map<List<Long>, OutputWriter> late = new LinkedHashMap<>();

    TaskWriter(long epoch) {
      this.epoch = epoch;
    }

    @Override
    public void write(InternalRow row) throws IOException {
      if (outputs.length == 1) {
        write(0, row);
      } else {
        write(row.getInt(schema.size() - 1), row);
      }
    }

    private void write(int out, InternalRow row) throws IOException {
      if (known[out] == null) {
        known[out] = new Output(out);
      }
      Output output = known[out];
      int at = befores[out];
      if (at >= 0 && !row.isNullAt(at)) {
        long before = row.getLong(at);
        late.computeIfAbsent(List.of((long) out, before), key -> output.writer(before, epoch)).write(row);
        return;
      }
      if (writers[out] == null) {
        writers[out] = output.writer(JobTime.NONE, epoch);
      }
      writers[out].write(row);
    }

    private List<OutputWriter> all() {
      List<OutputWriter> all = new ArrayList<>(late.values());
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
}
