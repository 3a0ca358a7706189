package dev.penstock.kernel.log;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.penstock.kernel.state.Damaged;
import dev.penstock.kernel.state.SlotTimers;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.CRC32C;

/**
 * The progress of a job that runs outside Spark's streaming engine: its newest epoch, and whether that is done. It is rewritten before and after each epoch, so an interrupted epoch
 * is replayed with the same input and on the same state.
 */
final class EpochFile {
  private static final ObjectMapper JSON = new ObjectMapper();
  /** The second line is the CRC32C of the first; version 1 had none. Versions before 3 had no timers. */
  private static final int VERSION = 3;

  /**
   * An epoch.
   *
   * @param partitions number of partitions of the state; never changes in a job
   * @param before the state that it reads, by partition; empty in the first epoch
   * @param after the state that it has committed; null until it is done
   * @param recorded the LSN that the log must have reached to contain the output of this epoch and all earlier ones
   */
  record Epoch(
      long number, LogOffset start, LogOffset end, int partitions, List<EpochState> before, List<EpochState> after,
      long recorded) {
    boolean done() {
      return after != null;
    }

    Epoch done(List<EpochState> made, long lsn) {
      return new Epoch(number, start, end, partitions, before, made, Math.max(recorded, lsn));
    }
  }

  private final Path path;
  private final EpochClock clock;

  EpochFile(Path path, EpochClock clock) {
    this.path = path;
    this.clock = clock;
  }

  /** The newest epoch; null if there is none. */
  Epoch read() throws IOException {
    String[] lines;
    try {
      lines = new String(Files.readAllBytes(path), StandardCharsets.UTF_8).split("\n", -1);
    } catch (NoSuchFileException e) {
      return null;
    }
    try {
      JsonNode n = JSON.readTree(lines[0]);
      int version = n.required("version").asInt();
      boolean sound = version == 1 ? lines.length == 1 : lines.length == 2 && lines[1].equals(sum(lines[0]));
      if (!sound || version > VERSION) {
        throw new IllegalArgumentException("checksum");
      }
      return new Epoch(
          n.required("epoch").asLong(), clock.parse(n.required("start").asText()), clock.parse(n.required("end").asText()),
          n.required("partitions").asInt(), state(n.required("before"), n.path("dueBefore")),
          n.has("after") ? state(n.get("after"), n.path("dueAfter")) : null, n.path("recorded").asLong());
    } catch (JsonProcessingException | RuntimeException e) {
      Damaged damaged = new Damaged(path, "How far the queries have come is unknown.");
      damaged.initCause(e);
      throw damaged;
    }
  }

  private static List<EpochState> state(JsonNode names, JsonNode due) {
    List<EpochState> out = new ArrayList<>();
    for (int i = 0; i < names.size(); i++) {
      out.add(new EpochState(names.get(i).asText(), due.path(i).asLong(SlotTimers.NEVER)));
    }
    return out;
  }

  private static void write(ObjectNode to, String names, String due, List<EpochState> state) {
    state.forEach(part -> to.withArray(names).add(part.name()));
    state.forEach(part -> to.withArray(due).add(part.due()));
  }

  private static String sum(String text) {
    CRC32C sum = new CRC32C();
    sum.update(text.getBytes(StandardCharsets.UTF_8));
    return Long.toString(sum.getValue());
  }

  void write(Epoch epoch) throws IOException {
    ObjectNode n = JSON.createObjectNode();
    n.put("version", VERSION);
    n.put("epoch", epoch.number);
    n.put("start", epoch.start.json());
    n.put("end", epoch.end.json());
    n.put("partitions", epoch.partitions);
    n.putArray("before");
    write(n, "before", "dueBefore", epoch.before);
    if (epoch.after != null) {
      n.putArray("after");
      write(n, "after", "dueAfter", epoch.after);
    }
    n.put("recorded", epoch.recorded);
    Files.createDirectories(path.getParent());
    Path beside = path.resolveSibling(path.getFileName() + ".new");
    String text = n.toString();
    Files.writeString(beside, text + "\n" + sum(text));
    Files.move(beside, path, StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE);
  }
}
