package dev.penstock.kernel.log;

import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** Where the tasks of a shared job write packed rows: each slot is an output. */
public final class PackedOutput implements Serializable {
  private static final long serialVersionUID = 1L;
  /** The last column of rows that can be behind the watermark. */
  private static final String BEFORE = "__before";

  private final HashMap<Integer, String> schemas;
  private final long epoch;
  private final String folder;

  /** @param schemas the schemas of the rows by slot, as JSON */
  PackedOutput(Map<Integer, String> schemas, long epoch, String folder) {
    this.schemas = new HashMap<>(schemas);
    this.epoch = epoch;
    this.folder = folder;
  }

  /** Where files go. */
  public String folder() {
    return folder;
  }

  public Task task() {
    return new Task();
  }

  /** What one task writes. */
  public final class Task implements AutoCloseable {
    private final Map<Integer, Slot> slots = new HashMap<>();
    private final List<OutputWriter> writers = new ArrayList<>();
    private Slot last;

    private Task() {}

    /** Rows of a slot that is no member any more are nobody's. */
    public void write(int slot, UnsafeRow row) throws IOException {
      Slot to = slot(slot);
      if (to != null) {
        to.writer(row).write(row);
      }
    }

    public void write(int slot, byte[] bytes) throws IOException {
      Slot to = slot(slot);
      if (to != null) {
        to.row.pointTo(bytes, bytes.length);
        to.writer(to.row).write(to.row);
      }
    }

    private Slot slot(int slot) {
      // Rows of a slot come one after the other.
      if (last != null && last.slot == slot) {
        return last;
      }
      last = opened(slot);
      return last;
    }

    private Slot opened(int slot) {
      Slot to = slots.get(slot);
      String schema = to == null ? schemas.get(slot) : null;
      if (schema != null) {
        to = new Slot(slot, (StructType) DataType.fromJson(schema));
        slots.put(slot, to);
      }
      return to;
    }

    public Written finish() throws IOException {
      List<EpochPart> parts = new ArrayList<>();
      for (OutputWriter writer : writers) {
        parts.add(writer.finish());
      }
      return new Written(parts);
    }

    /** Removes what was written: the task has failed. */
    public void discard() throws IOException {
      for (OutputWriter writer : writers) {
        writer.discard();
      }
    }

    @Override
    public void close() {
      writers.forEach(OutputWriter::close);
    }

    /** The rows of one member, those behind the watermark apart from the others. */
    private final class Slot {
      private final int slot;
      private final StructType schema;
      private final UnsafeRow row;
      /** The column with the watermark in force for a row behind it; it is not written. */
      private final int beforeAt;
      private OutputWriter writer;
      private final Map<Long, OutputWriter> late = new HashMap<>();

      Slot(int slot, StructType made) {
        this.slot = slot;
        row = new UnsafeRow(made.size());
        int last = made.size() - 1;
        beforeAt = last >= 0 && made.apply(last).name().equals(BEFORE) ? last : -1;
        schema = beforeAt < 0 ? made : new StructType(Arrays.copyOf(made.fields(), last));
      }

      OutputWriter writer(UnsafeRow of) {
        if (beforeAt >= 0 && !of.isNullAt(beforeAt)) {
          return late.computeIfAbsent(of.getLong(beforeAt), this::open);
        }
        if (writer == null) {
          writer = open(JobTime.NONE);
        }
        return writer;
      }

      private OutputWriter open(long before) {
        OutputWriter opened = new OutputWriter(slot, schema, IntStream.range(0, schema.size()).toArray(), before, epoch, folder);
        writers.add(opened);
        return opened;
      }
    }
  }
}
