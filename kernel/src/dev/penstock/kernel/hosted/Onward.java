package dev.penstock.kernel.hosted;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;

/**
 * Packed rows on their way to the operators of a depth, by partition of the state: inline while they are few, in files when they are many. Files are in the job's folder of outputs,
 * which is swept when the database is opened.
 */
final class Onward {
  private static final int INLINE_BYTES = 1 << 18;

  private Onward() {}

  /** Rows of one partition at one depth: {@code bytes}, or a file. */
  record Part(int depth, int partition, byte[] bytes, String path, long length) implements Serializable {
    DataInputStream open() throws IOException {
      InputStream in = path == null ? new ByteArrayInputStream(bytes) : Files.newInputStream(Path.of(path));
      return new DataInputStream(new BufferedInputStream(in));
    }

    void discard() {
      if (path != null) {
        try {
          Files.deleteIfExists(Path.of(path));
        } catch (IOException e) {
          // It is swept with the folder.
        }
      }
    }
  }

  /** Writes the rows that one thread makes. */
  static final class Writer {
    private final String folder;
    private final int partitions;
    private final Map<List<Integer>, Pile> piles = new TreeMap<>(
        (a, b) -> a.get(0).equals(b.get(0)) ? a.get(1) - b.get(1) : a.get(0) - b.get(0));

    Writer(String folder, int partitions) {
      this.folder = folder;
      this.partitions = partitions;
    }

    void add(int depth, Packed row) throws IOException {
      Pile pile = piles.computeIfAbsent(List.of(depth, row.partition(partitions)), at -> new Pile());
      row.write(pile.data);
      if (pile.file == null && pile.inline.size() > INLINE_BYTES) {
        Files.createDirectories(Path.of(folder));
        pile.path = Path.of(folder, "onward-" + UUID.randomUUID());
        pile.spill();
      }
    }

    List<Part> finish() throws IOException {
      List<Part> parts = new ArrayList<>();
      for (Map.Entry<List<Integer>, Pile> one : piles.entrySet()) {
        Pile pile = one.getValue();
        pile.data.flush();
        long length = pile.length();
        if (pile.file != null) {
          pile.file.close();
        }
        parts.add(new Part(
            one.getKey().get(0), one.getKey().get(1), pile.file == null ? pile.inline.toByteArray() : null,
            pile.path == null ? null : pile.path.toString(), length));
      }
      return parts;
    }

    /** Removes its files: the task has failed. */
    void discard() throws IOException {
      for (Pile pile : piles.values()) {
        if (pile.file != null) {
          pile.file.close();
          Files.deleteIfExists(pile.path);
        }
      }
    }
  }

  private static final class Pile {
    private ByteArrayOutputStream inline = new ByteArrayOutputStream();
    private DataOutputStream data = new DataOutputStream(inline);
    private Path path;
    private OutputStream file;

    void spill() throws IOException {
      file = new BufferedOutputStream(Files.newOutputStream(path), 1 << 16);
      inline.writeTo(file);
      inline = null;
      data = new DataOutputStream(file);
    }

    long length() throws IOException {
      return path == null ? inline.size() : Files.size(path);
    }
  }
}
