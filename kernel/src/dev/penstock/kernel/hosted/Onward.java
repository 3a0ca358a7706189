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
import java.util.UUID;

/**
 * Packed rows on their way to the operators of a depth, by partition of the state: inline while there are few, in files otherwise. The files are in the job's output folder,
 * which is cleaned when the database is opened.
 */
final class Onward {
  private static final int INLINE_BYTES = 1 << 18;

  private Onward() {}

  /** Rows of one partition at one depth: {@code bytes}, or a file. {@code after}: emitted at the watermark that the epoch reaches, see {@link GroupTask}. */
  record Part(int depth, int partition, boolean after, byte[] bytes, String path, long length) implements Serializable {
    DataInputStream open() throws IOException {
      InputStream in = path == null ? new ByteArrayInputStream(bytes) : Files.newInputStream(Path.of(path));
      return new DataInputStream(new BufferedInputStream(in));
    }

    void discard() {
      if (path != null) {
        try {
          Files.deleteIfExists(Path.of(path));
        } catch (IOException e) {
          // It is removed when the folder is cleaned.
        }
      }
    }
  }

  /** Writes the rows of one thread. */
  static final class Writer {
    private final String folder;
    private final int partitions;
    private final boolean after;
    /** By depth, then by partition. */
    private final List<Pile[]> piles = new ArrayList<>();

    /** @param after whether the rows are emitted at the watermark that the epoch reaches */
    Writer(String folder, int partitions, boolean after) {
      this.folder = folder;
      this.partitions = partitions;
      this.after = after;
    }

    void add(int depth, Packed row) throws IOException {
      while (piles.size() <= depth) {
        piles.add(new Pile[partitions]);
      }
      int partition = row.partition(partitions);
      Pile pile = piles.get(depth)[partition];
      if (pile == null) {
        pile = new Pile();
        piles.get(depth)[partition] = pile;
      }
      row.write(pile.data);
      if (pile.file == null && pile.inline.size() > INLINE_BYTES) {
        Files.createDirectories(Path.of(folder));
        pile.spill(Path.of(folder, "onward-" + UUID.randomUUID()));
      }
    }

    List<Part> finish() throws IOException {
      List<Part> parts = new ArrayList<>();
      for (int depth = 0; depth < piles.size(); depth++) {
        for (int partition = 0; partition < partitions; partition++) {
          Pile pile = piles.get(depth)[partition];
          if (pile != null) {
            parts.add(pile.finish(depth, partition, after));
          }
        }
      }
      return parts;
    }

    /** Removes its files after the task has failed. */
    void discard() throws IOException {
      for (Pile[] some : piles) {
        for (Pile pile : some) {
          if (pile != null && pile.file != null) {
            pile.file.close();
            Files.deleteIfExists(pile.path);
          }
        }
      }
    }
  }

  private static final class Pile {
    private ByteArrayOutputStream inline = new ByteArrayOutputStream();
    private DataOutputStream data = new DataOutputStream(inline);
    private Path path;
    private OutputStream file;

    void spill(Path to) throws IOException {
      path = to;
      file = new BufferedOutputStream(Files.newOutputStream(path), 1 << 16);
      inline.writeTo(file);
      inline = null;
      data = new DataOutputStream(file);
    }

    Part finish(int depth, int partition, boolean after) throws IOException {
      data.flush();
      if (file == null) {
        return new Part(depth, partition, after, inline.toByteArray(), null, inline.size());
      }
      file.close();
      return new Part(depth, partition, after, null, path.toString(), Files.size(path));
    }
  }
}
