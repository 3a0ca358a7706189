package dev.penstock.kernel.log;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;

/**
 * How far a job without Spark's engine for streams has come: its newest epoch, and whether that is done. It is replaced before each epoch and after it, so an epoch that was
 * begun is repeated with the same input and on the same state.
 */
final class EpochFile {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int VERSION = 1;

  /**
   * An epoch.
   *
   * @param partitions into how many parts state is cut; never changes in a job
   * @param before what the parts of the state that it reads are called; empty in the first epoch
   * @param after the state that it has made; null while it is not done
   */
  record Epoch(long number, LogOffset start, LogOffset end, int partitions, List<String> before, List<String> after) {
    boolean done() {
      return after != null;
    }

    Epoch done(List<String> made) {
      return new Epoch(number, start, end, partitions, before, made);
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
    byte[] text;
    try {
      text = Files.readAllBytes(path);
    } catch (NoSuchFileException e) {
      return null;
    }
    try {
      JsonNode n = JSON.readTree(text);
      if (n.required("version").asInt() != VERSION) {
        throw new IOException(path + " is of another version");
      }
      return new Epoch(
          n.required("epoch").asLong(), clock.parse(n.required("start").asText()), clock.parse(n.required("end").asText()),
          n.required("partitions").asInt(), names(n.required("before")), n.has("after") ? names(n.get("after")) : null);
    } catch (JsonProcessingException | RuntimeException e) {
      throw new IOException(path + " is damaged", e);
    }
  }

  private static List<String> names(JsonNode list) {
    List<String> out = new ArrayList<>();
    list.forEach(name -> out.add(name.asText()));
    return out;
  }

  void write(Epoch epoch) throws IOException {
    ObjectNode n = JSON.createObjectNode();
    n.put("version", VERSION);
    n.put("epoch", epoch.number);
    n.put("start", epoch.start.json());
    n.put("end", epoch.end.json());
    n.put("partitions", epoch.partitions);
    epoch.before.forEach(n.putArray("before")::add);
    if (epoch.after != null) {
      epoch.after.forEach(n.putArray("after")::add);
    }
    Files.createDirectories(path.getParent());
    Path beside = path.resolveSibling(path.getFileName() + ".new");
    Files.write(beside, JSON.writeValueAsBytes(n));
    Files.move(beside, path, StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE);
  }
}
