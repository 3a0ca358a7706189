package dev.penstock.kernel.log;

import com.fasterxml.jackson.databind.ObjectMapper;
import dev.penstock.kernel.error.ErrorChannel;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The sink of a job: tasks write Arrow messages (inline when small, files when large); {@code commit} passes the epoch to the
 * job's {@link Outbox} and returns when Python has recorded it.
 *
 * <p>Options: {@code job}, {@code folder} (for files), {@code outputs}: a JSON array with one array of column numbers per output. With more
 * than one output the schema's last column is {@code __out}: the number of the output that a row belongs to (INT), or for each output
 * whether the row belongs to it (ARRAY of BOOLEAN). {@code befores}: a JSON array with the number of one more column per output, or -1: for a row behind the watermark
 * that watermark, NULL for all others.
 * {@code errors}: the number of the job's {@link ErrorChannel}, if rows can fail.
 */
public final class LogSink extends LogTable.Provider {
  private static final ObjectMapper JSON = new ObjectMapper();

  // Spark asks for a schema, although a streaming write passes none.
  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return new StructType();
  }

  @Override
  public LogTable getTable(StructType schema, Transform[] partitioning, Map<String, String> options) {
    return new SinkTable(schema);
  }

  private static final class SinkTable extends LogTable implements SupportsWrite {
    SinkTable(StructType schema) {
      super(schema, TableCapability.STREAMING_WRITE, TableCapability.ACCEPT_ANY_SCHEMA);
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return new WriteBuilder() {
        @Override
        public Write build() {
          return new Write() {
            @Override
            public StreamingWrite toStreaming() {
              return new EpochWrite(info);
            }
          };
        }
      };
    }
  }

  private static final class EpochWrite implements StreamingWrite {
    private final StructType schema;
    private final String folder;
    private final int[][] outputs;
    private final int[] befores;
    private final EpochOutput output;

    EpochWrite(LogicalWriteInfo info) {
      schema = info.schema();
      folder = info.options().get("folder");
      String channel = info.options().get("errors");
      output = new EpochOutput(
          info.options().get("job"), channel == null ? null : ErrorChannel.of(Long.parseLong(channel)));
      try {
        outputs = JSON.readValue(info.options().get("outputs"), int[][].class);
        befores = JSON.readValue(info.options().get("befores"), int[].class);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }

    @Override
    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
      return new LogWriterFactory(schema, outputs, befores, folder);
    }

    @Override
    public boolean useCommitCoordinator() {
      return false;
    }

    @Override
    public void commit(long epochId, WriterCommitMessage[] messages) {
      List<Written> tasks = new ArrayList<>();
      for (WriterCommitMessage m : messages) {
        tasks.add((Written) m);
      }
      try {
        output.deliver(epochId, tasks);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      } catch (InterruptedException e) {
        throw EpochWrite.<RuntimeException>sneaky(e);
      }
    }

    @Override
    public void abort(long epochId, WriterCommitMessage[] messages) {
      for (WriterCommitMessage m : messages) {
        if (m instanceof Written written) {
          written.discard();
        }
      }
    }

    @SuppressWarnings("unchecked")
    private static <E extends Throwable> RuntimeException sneaky(Throwable e) throws E {
      throw (E) e;
    }
  }
}
