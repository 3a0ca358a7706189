package dev.penstock.kernel.log;

import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** Where the tasks of a shared job write packed rows: each slot is an output. */
public final class PackedOutput implements Serializable {
  private static final long serialVersionUID = 1L;

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
    private record Slot(OutputWriter writer, UnsafeRow row) {}

    private final Map<Integer, Slot> slots = new LinkedHashMap<>();

    private Task() {}

    /** Rows of a slot that is no member any more are nobody's. */
    public void write(int slot, byte[] bytes) throws IOException {
      Slot to = slots.get(slot);
      if (to == null) {
        String own = schemas.get(slot);
        if (own == null) {
          return;
        }
        StructType schema = (StructType) DataType.fromJson(own);
        to = new Slot(new OutputWriter(slot, schema, JobTime.NONE, epoch, folder), new UnsafeRow(schema.size()));
        slots.put(slot, to);
      }
      to.row.pointTo(bytes, bytes.length);
      to.writer.write(to.row);
    }

    public Written finish() throws IOException {
      List<EpochPart> parts = new ArrayList<>();
      for (Slot slot : slots.values()) {
        parts.add(slot.writer.finish());
      }
      return new Written(parts);
    }

    /** Removes what was written: the task has failed. */
    public void discard() throws IOException {
      for (Slot slot : slots.values()) {
        slot.writer.discard();
      }
    }

    @Override
    public void close() {
      slots.values().forEach(slot -> slot.writer.close());
    }
  }
}
