package dev.penstock.kernel.log;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.penstock.kernel.error.ErrorChannel;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
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
 * Where a job's epochs go: tasks write Arrow messages (inline when small, files when large), {@code commit} hands the epoch to the
 * job's {@link Outbox} and returns when Python has recorded it.
 *
 * <p>Options: {@code job}, {@code folder} (for files), {@code outputs}: a JSON array with one array of column numbers per output. With more
 * than one output the schema's last column is {@code __out}: the number of the output that a row belongs to (INT), or for each output
 * whether the row belongs to it (ARRAY of BOOLEAN). {@code befores}: a JSON array with the number of one more column per output, or -1: the watermark that
 * was in force for a row that is behind it, NULL for all others.
 * {@code packed}: the frame is that of a shared job, a slot (INT) and the bytes of a row; each slot is an output, of the schema that the clock knows.
 * {@code errors}: the number of the job's {@link ErrorChannel}, where rows can fail.
 */
public final class LogSink extends LogTable.Provider {
  private static final ObjectMapper JSON = new ObjectMapper();

  // A stream is written to a sink without being told a schema, so Spark asks for one.
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
    private final String job;
    private final String folder;
    private final int[][] outputs;
    private final int[] befores;
    private final EpochClock clock;
    private final Outbox outbox;
    private final ErrorChannel errors;
    private final boolean packed;

    EpochWrite(LogicalWriteInfo info) {
      schema = info.schema();
      job = info.options().get("job");
      folder = info.options().get("folder");
      packed = info.options().getBoolean("packed", false);
      clock = EpochClock.of(job);
      outbox = Outbox.of(job);
      String channel = info.options().get("errors");
      errors = channel == null ? null : ErrorChannel.of(Long.parseLong(channel));
      try {
        outputs = JSON.readValue(info.options().get("outputs"), int[][].class);
        befores = JSON.readValue(info.options().get("befores"), int[].class);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }

    @Override
    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
      return new LogWriterFactory(schema, outputs, befores, folder, packed ? clock.schemas() : null);
    }

    @Override
    public boolean useCommitCoordinator() {
      return false;
    }

    @Override
    public void commit(long epochId, WriterCommitMessage[] messages) {
      long rows = 0;
      ObjectNode head = JSON.createObjectNode();
      ArrayNode parts = head.putArray("parts");
      ByteArrayOutputStream body = new ByteArrayOutputStream();
      for (WriterCommitMessage m : messages) {
        for (EpochPart p : ((LogWriterFactory.Written) m).parts) {
          rows += p.rows();
          p.describe(parts.addObject(), body);
        }
      }
      List<ErrorChannel.Part> failed = errors == null ? List.of() : errors.drain(epochId);
      failed.forEach(part -> describe(part, head.withArray("errors").addObject(), body));
      boolean large = clock.settleState(epochId);
      EpochClock.Written epoch = clock.written();
      if (rows > 0 || !failed.isEmpty() || epoch.news() || large) {
        head.put("epoch", epochId);
        head.put("wm", epoch.watermark());
        head.put("idle", epoch.idle());
        head.put("lsn", epoch.lsn());
        try {
          byte[] json = JSON.writeValueAsBytes(head);
          ByteArrayOutputStream out = new ByteArrayOutputStream(json.length + body.size() + 4);
          DataOutputStream data = new DataOutputStream(out);
          // Spaces after the JSON keep Arrow's buffers aligned.
          int padding = -(json.length + 4) & 7;
          data.writeInt(json.length + padding);
          data.write(json);
          for (int i = 0; i < padding; i++) {
            data.write(' ');
          }
          body.writeTo(data);
          outbox.deliver(out.toByteArray());
        } catch (IOException e) {
          throw new UncheckedIOException(e);
        } catch (InterruptedException e) {
          throw EpochWrite.<RuntimeException>sneaky(e);
        }
      }
      clock.recorded();
    }

    private static void describe(ErrorChannel.Part part, ObjectNode to, ByteArrayOutputStream body) {
      to.put("query", part.query());
      if (part.path() != null) {
        to.put("path", part.path());
      } else {
        to.put("at", body.size());
        to.put("length", part.bytes().length);
        body.writeBytes(part.bytes());
      }
    }

    @Override
    public void abort(long epochId, WriterCommitMessage[] messages) {
      for (WriterCommitMessage m : messages) {
        if (m instanceof LogWriterFactory.Written) {
          for (EpochPart p : ((LogWriterFactory.Written) m).parts) {
            if (p.path != null) {
              try {
                Files.deleteIfExists(Path.of(p.path));
              } catch (IOException e) {
                // The folder of a job's outputs is swept when the database is opened.
              }
            }
          }
        }
      }
    }

    @SuppressWarnings("unchecked")
    private static <E extends Throwable> RuntimeException sneaky(Throwable e) throws E {
      throw (E) e;
    }
  }
}
