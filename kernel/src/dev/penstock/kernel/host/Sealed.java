package dev.penstock.kernel.host;

import dev.penstock.kernel.state.Damaged;
import java.io.EOFException;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.zip.CRC32C;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.PositionedReadable;
import org.apache.hadoop.fs.Seekable;

/**
 * Files of a checkpoint that end with their checksum: offsets, commits, and the change logs and schemas of state. Snapshots of state have checksums of their own.
 *
 * <p>In a job whose folder has a file {@code sealed}, all of them have a checksum. A job without it was created by an earlier version, and its files may have none.
 */
final class Sealed {
  private static final int MAGIC = 0x50534B63;
  static final int LENGTH = 8;
  private static final String LOST = "How far the query has come is unknown.";

  private Sealed() {}

  static boolean applies(Path file) {
    String name = file.getFileName().toString();
    String in = file.getParent().getFileName().toString();
    return name.endsWith(".changelog")
        || in.equals("_metadata") && name.equals("schema")
        || (in.equals("offsets") || in.equals("commits")) && name.chars().allMatch(Character::isDigit);
  }

  /** Whether all such files of a job must have a checksum. */
  private static boolean required(Path file) {
    for (Path at = file; at != null; at = at.getParent()) {
      if (at.getFileName() != null && at.getFileName().toString().equals("checkpoint")) {
        return Files.exists(at.resolveSibling("sealed"));
      }
    }
    return false;
  }

  /** Writes a file, then its checksum. */
  static final class Output extends FilterOutputStream {
    private final CRC32C sum = new CRC32C();

    Output(OutputStream out) {
      super(out);
    }

    @Override
    public void write(int b) throws IOException {
      sum.update(b);
      out.write(b);
    }

    @Override
    public void write(byte[] bytes, int from, int length) throws IOException {
      sum.update(bytes, from, length);
      out.write(bytes, from, length);
    }

    void seal() throws IOException {
      out.write(ByteBuffer.allocate(LENGTH).putInt(MAGIC).putInt((int) sum.getValue()).array());
    }
  }

  /** Opens the content of a file after verifying its checksum. */
  static FSDataInputStream open(Path file) throws IOException {
    FileChannel channel = FileChannel.open(file, StandardOpenOption.READ);
    try {
      return new FSDataInputStream(new Input(channel, verified(file, channel)));
    } catch (IOException | RuntimeException e) {
      channel.close();
      throw e;
    }
  }

  /** Verifies the checksum; returns the length of the content. */
  private static long verified(Path file, FileChannel channel) throws IOException {
    long size = channel.size();
    ByteBuffer seal = ByteBuffer.allocate(LENGTH);
    if (size >= LENGTH) {
      channel.read(seal, size - LENGTH);
    }
    seal.flip();
    if (seal.remaining() < LENGTH || seal.getInt() != MAGIC) {
      if (required(file)) {
        throw new Damaged(file, LOST);
      }
      return size;
    }
    CRC32C sum = new CRC32C();
    ByteBuffer part = ByteBuffer.allocate(1 << 16);
    for (long at = 0; at < size - LENGTH; ) {
      part.clear().limit((int) Math.min(part.capacity(), size - LENGTH - at));
      int read = channel.read(part, at);
      if (read < 0) {
        throw new Damaged(file, LOST);
      }
      sum.update(part.array(), 0, read);
      at += read;
    }
    if ((int) sum.getValue() != seal.getInt()) {
      throw new Damaged(file, LOST);
    }
    return size - LENGTH;
  }

  private static final class Input extends InputStream implements Seekable, PositionedReadable {
    private final FileChannel channel;
    private final long end;
    private long at;

    Input(FileChannel channel, long end) {
      this.channel = channel;
      this.end = end;
    }

    @Override
    public int read() throws IOException {
      byte[] one = new byte[1];
      return read(one, 0, 1) < 0 ? -1 : one[0] & 255;
    }

    @Override
    public int read(byte[] bytes, int from, int length) throws IOException {
      int read = read(at, bytes, from, length);
      at += Math.max(read, 0);
      return read;
    }

    @Override
    public int read(long position, byte[] bytes, int from, int length) throws IOException {
      int most = (int) Math.min(length, end - position);
      return most <= 0 && length > 0 ? -1 : channel.read(ByteBuffer.wrap(bytes, from, most), position);
    }

    @Override
    public void readFully(long position, byte[] bytes, int from, int length) throws IOException {
      for (int done = 0; done < length; ) {
        int read = read(position + done, bytes, from + done, length - done);
        if (read < 0) {
          throw new EOFException();
        }
        done += read;
      }
    }

    @Override
    public void readFully(long position, byte[] bytes) throws IOException {
      readFully(position, bytes, 0, bytes.length);
    }

    @Override
    public int available() {
      return (int) Math.min(Integer.MAX_VALUE, end - at);
    }

    @Override
    public void seek(long position) {
      at = position;
    }

    @Override
    public long getPos() {
      return at;
    }

    @Override
    public boolean seekToNewSource(long position) {
      return false;
    }

    @Override
    public void close() throws IOException {
      channel.close();
    }
  }
}
