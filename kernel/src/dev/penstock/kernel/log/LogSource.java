package dev.penstock.kernel.log;

import dev.penstock.kernel.state.EventTime;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The commit log as a streaming source: the rows of one object, in Arrow batches, without a folder listing.
 *
 * <p>Options: {@code job}, {@code scan} (number of the scan in its job), {@code object}, {@code columns} (the number of leading columns of
 * the schema that are stored; the rest are computed here: {@code __wm}, {@code __pwm}, {@code __hb}, {@code __lsn}, {@code __to}), {@code parallelism}.
 *
 * <p>An epoch without rows still gives one heartbeat row ({@code __hb} true, data columns NULL) if the job has event time, because
 * Spark's watermark moves only with rows.
 */
public final class LogSource extends LogTable.Provider {

  @Override
  public LogTable getTable(StructType schema, Transform[] partitioning, Map<String, String> options) {
    return new SourceTable(schema);
  }

  private static final class SourceTable extends LogTable implements SupportsRead {
    SourceTable(StructType schema) {
      super(schema, TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return new LogScan(schema, options);
    }
  }

  private static final class LogScan implements ScanBuilder, Scan, SupportsPushDownRequiredColumns {
    private final StructType full;
    private final CaseInsensitiveStringMap options;
    private StructType required;

    LogScan(StructType full, CaseInsensitiveStringMap options) {
      this.full = full;
      this.options = options;
      this.required = full;
    }

    @Override
    public void pruneColumns(StructType requiredSchema) {
      required = requiredSchema;
    }

    @Override
    public Scan build() {
      return this;
    }

    @Override
    public StructType readSchema() {
      return required;
    }

    @Override
    public String description() {
      return "penstock log, object " + options.get("object");
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
      return new LogStream(full, required, options);
    }
  }

  private static final class LogStream implements MicroBatchStream, SupportsAdmissionControl {
    private final StructType full;
    private final StructType required;
    private final EpochClock clock;
    private final int scan;
    private final int object;
    private final int columns;
    private final int parallelism;
    private final boolean eventTime;

    LogStream(StructType full, StructType required, CaseInsensitiveStringMap options) {
      this.full = full;
      this.required = required;
      this.clock = EpochClock.of(options.get("job"));
      this.scan = options.getInt("scan", 0);
      this.object = options.getInt("object", -1);
      this.columns = options.getInt("columns", 0);
      this.parallelism = options.getInt("parallelism", 2);
      this.eventTime = options.getBoolean("eventTime", false);
    }

    @Override
    public Offset initialOffset() {
      return clock.initial();
    }

    @Override
    public Offset deserializeOffset(String json) {
      return clock.parse(json);
    }

    @Override
    public Offset latestOffset() {
      throw new UnsupportedOperationException("latestOffset must be called with a start");
    }

    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
      try {
        return clock.latest(scan, (LogOffset) start);
      } catch (InterruptedException e) {
        throw LogSource.<RuntimeException>sneaky(e);
      }
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
      LogOffset from = (LogOffset) start;
      LogOffset to = (LogOffset) end;
      // Spark plans an epoch on the thread that runs it.
      EventTime.reaches(to.wm() == JobTime.NONE ? null : to.wm());
      List<LogSlice> slices = clock.plan(object, from, to);
      List<List<LogSlice>> groups = LogSlice.spread(slices, parallelism);
      if (groups.isEmpty() && eventTime) {
        groups.add(Collections.emptyList());
      }
      InputPartition[] out = new InputPartition[groups.size()];
      for (int i = 0; i < out.length; i++) {
        out[i] = new LogPartition(groups.get(i), to.wm());
      }
      return out;
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return new LogReaderFactory(full, required, columns);
    }

    /** Does nothing: Spark's checkpoint is not on disk yet, and Python reports when it is. */
    @Override
    public void commit(Offset end) {}

    @Override
    public void stop() {}
  }

  @SuppressWarnings("unchecked")
  private static <E extends Throwable> RuntimeException sneaky(Throwable e) throws E {
    throw (E) e;
  }
}
