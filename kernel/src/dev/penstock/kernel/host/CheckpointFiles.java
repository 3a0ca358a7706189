package dev.penstock.kernel.host;

import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/**
 * Writes checkpoint files and folders on a local disk with plain file operations: a temporary file and a rename. Spark's own manager
 * takes several milliseconds for this through Hadoop's checksummed file system, twice per epoch. It still handles other file systems.
 */
public final class CheckpointFiles extends FileSystemBasedCheckpointFileManager {

  private final org.apache.hadoop.fs.Path root;

  public CheckpointFiles(org.apache.hadoop.fs.Path path, Configuration conf) {
    super(path, conf);
    root = path;
  }

  private static boolean plain(org.apache.hadoop.fs.Path path) {
    String scheme = path.toUri().getScheme();
    return scheme == null || scheme.equals("file");
  }

  private static Path local(org.apache.hadoop.fs.Path path) {
    return Path.of(path.toUri().getPath());
  }

  @Override
  public boolean exists(org.apache.hadoop.fs.Path path) {
    return isLocal() && plain(path) ? Files.exists(local(path)) : super.exists(path);
  }

  /** Hadoop starts a chmod process for each folder that it creates. */
  @Override
  public void mkdirs(org.apache.hadoop.fs.Path path) {
    if (!isLocal() || !plain(path)) {
      super.mkdirs(path);
      return;
    }
    try {
      Files.createDirectories(local(path));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  @Override
  public org.apache.hadoop.fs.Path createCheckpointDirectory() {
    mkdirs(root);
    return fs().makeQualified(root);
  }

  @Override
  public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(
      org.apache.hadoop.fs.Path path, boolean overwriteIfPossible) {
    if (!isLocal() || !plain(path)) {
      return super.createAtomic(path, overwriteIfPossible);
    }
    Path target = local(path);
    Path beside = target.resolveSibling("." + target.getFileName() + "." + UUID.randomUUID() + ".tmp");
    try {
      Files.createDirectories(target.getParent());
      OutputStream out = new BufferedOutputStream(Files.newOutputStream(beside));
      return new Atomic(Sealed.applies(target) ? new Sealed.Output(out) : out, beside, target, overwriteIfPossible);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  @Override
  public FSDataInputStream open(org.apache.hadoop.fs.Path path) {
    if (!isLocal() || !plain(path) || !Sealed.applies(local(path))) {
      return super.open(path);
    }
    try {
      return Sealed.open(local(path));
    } catch (NoSuchFileException e) {
      return super.open(path);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static final class Atomic extends CheckpointFileManager.CancellableFSDataOutputStream {
    private final Path beside;
    private final Path target;
    private final boolean overwrite;
    private final OutputStream content;
    private boolean over;

    Atomic(OutputStream out, Path beside, Path target, boolean overwrite) {
      super(out);
      this.content = out;
      this.beside = beside;
      this.target = target;
      this.overwrite = overwrite;
    }

    @Override
    public synchronized void close() throws IOException {
      if (over) {
        return;
      }
      over = true;
      if (content instanceof Sealed.Output sealed) {
        flush();
        sealed.seal();
      }
      super.close();
      if (!overwrite && Files.exists(target)) {
        Files.deleteIfExists(beside);
        throw new FileAlreadyExistsException(target.toString());
      }
      Files.move(beside, target, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
    }

    @Override
    public synchronized void cancel() {
      if (over) {
        return;
      }
      over = true;
      try {
        super.close();
        Files.deleteIfExists(beside);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }
}
