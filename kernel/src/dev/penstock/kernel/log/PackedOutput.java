package dev.penstock.kernel.log;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** The output of the tasks of a shared job, from packed rows. Each slot is an output; a member's late rows are another, numbered by the negated slot. */
public final class PackedOutput implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final ObjectMapper JSON = new ObjectMapper();

  private final HashMap<Integer, String> layouts;
  private final long epoch;
  private final String folder;

  /**
   * @param layouts the layout of each slot's rows, as JSON: their {@code schema}, and for each output the ordinals of its columns ({@code outputs}) and of the watermark in force for a row behind it
   *     ({@code befores}; -1: none). If there are two outputs, the last column says to which one a row belongs.
   */
  PackedOutput(Map<Integer, String> layouts, long epoch, String folder) {
    this.layouts = new HashMap<>(layouts);
    this.epoch = epoch;
    this.folder = folder;
  }

  /** The folder for files. */
  public String folder() {
    return folder;
  }

  public Task task() {
    return new Task();
  }

  /** The output of one task. */
  public final class Task implements AutoCloseable {
    private final Map<Integer, Slot> slots = new HashMap<>();
    private final List<OutputWriter> writers = new ArrayList<>();
    private final Map<Integer, Long> late = new HashMap<>();
    private Slot last;

    private Task() {}

    /** Writes a row; drops it if the member has left. */
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

    /** Counts late rows of a slot. */
    public void late(int slot, long rows) {
      late.merge(slot, rows, Long::sum);
    }

    private Slot slot(int slot) {
      // Rows of a slot mostly come together.
      if (last != null && last.slot == slot) {
        return last;
      }
      last = opened(slot);
      return last;
    }

    private Slot opened(int slot) {
      Slot to = slots.get(slot);
      String layout = to == null ? layouts.get(slot) : null;
      if (layout != null) {
        to = Slot.of(this, slot, Layout.of(layout));
        slots.put(slot, to);
      }
      return to;
    }

    public Written finish() throws IOException {
      List<EpochPart> parts = new ArrayList<>();
      for (OutputWriter writer : writers) {
        parts.add(writer.finish());
      }
      return new Written(parts, late);
    }

    /** Removes the output of a failed task. */
    public void discard() throws IOException {
      for (OutputWriter writer : writers) {
        writer.discard();
      }
    }

    @Override
    public void close() {
      writers.forEach(OutputWriter::close);
    }

    private OutputWriter open(int output, OutputWriter.Columns columns, long before) {
      OutputWriter opened = new OutputWriter(output, columns, before, epoch, folder);
      writers.add(opened);
      return opened;
    }
  }

  /** The parsed layout of a slot's rows. It is cached, because parsing takes longer than the tasks of a small epoch. */
  private record Layout(int columns, OutputWriter.Columns[] outputs, int[] befores) {
    private static final int MOST = 4_096;
    private static final Map<String, Layout> KNOWN = new ConcurrentHashMap<>();

    static Layout of(String text) {
      Layout known = KNOWN.get(text);
      if (known == null) {
        if (KNOWN.size() >= MOST) {
          KNOWN.clear();
        }
        known = read(text);
        KNOWN.put(text, known);
      }
      return known;
    }

    private static Layout read(String text) {
      try {
        JsonNode told = JSON.readTree(text);
        StructType made = (StructType) DataType.fromJson(told.get("schema").toString());
        OutputWriter.Columns[] outputs = new OutputWriter.Columns[told.get("outputs").size()];
        for (int i = 0; i < outputs.length; i++) {
          int[] places = JSON.convertValue(told.get("outputs").get(i), int[].class);
          StructType schema = new StructType();
          for (int place : places) {
            schema = schema.add(made.apply(place));
          }
          outputs[i] = new OutputWriter.Columns(schema, places);
        }
        return new Layout(made.size(), outputs, JSON.convertValue(told.get("befores"), int[].class));
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }

  /** The rows of one member. */
  private static final class Slot {
    private final int slot;
    private final UnsafeRow row;
    private final Output[] outputs;

    private Slot(int slot, int columns, Output[] outputs) {
      this.slot = slot;
      this.row = new UnsafeRow(columns);
      this.outputs = outputs;
    }

    static Slot of(Task task, int slot, Layout layout) {
      Output[] outputs = new Output[layout.outputs.length];
      for (int i = 0; i < outputs.length; i++) {
        outputs[i] = new Output(task, i == 0 ? slot : -slot, layout.outputs[i], layout.befores[i]);
      }
      return new Slot(slot, layout.columns, outputs);
    }

    OutputWriter writer(UnsafeRow of) {
      return outputs[outputs.length == 1 ? 0 : of.getInt(of.numFields() - 1)].writer(of);
    }
  }

  /** The rows of one output; those behind the watermark are written separately. */
  private static final class Output {
    private final Task task;
    private final int number;
    private final OutputWriter.Columns columns;
    private final int beforeAt;
    private OutputWriter writer;
    private final Map<Long, OutputWriter> late = new HashMap<>();

    Output(Task task, int number, OutputWriter.Columns columns, int beforeAt) {
      this.task = task;
      this.number = number;
      this.columns = columns;
      this.beforeAt = beforeAt;
    }

    OutputWriter writer(UnsafeRow of) {
      if (beforeAt >= 0 && !of.isNullAt(beforeAt)) {
        return late.computeIfAbsent(of.getLong(beforeAt), before -> task.open(number, columns, before));
      }
      if (writer == null) {
        writer = task.open(number, columns, JobTime.NONE);
      }
      return writer;
    }
  }
}
