package dev.penstock.kernel.host;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/**
 * This JVM's lock on a database folder. When Python is killed, its JVM survives it briefly and may still write a checkpoint; the
 * next process waits here until that JVM has exited.
 */
public final class FolderHold {
  private final FileChannel channel;

  private FolderHold(FileChannel channel) {
    this.channel = channel;
  }

  /** Acquires the lock; returns null after the timeout. */
  public static FolderHold acquire(String path, long timeoutMs) throws IOException, InterruptedException {
    FileChannel channel = FileChannel.open(Path.of(path), StandardOpenOption.CREATE, StandardOpenOption.WRITE);
    long deadline = System.nanoTime() + timeoutMs * 1_000_000;
    while (true) {
      FileLock lock = channel.tryLock();
      if (lock != null) {
        return new FolderHold(channel);
      }
      if (System.nanoTime() - deadline >= 0) {
        channel.close();
        return null;
      }
      Thread.sleep(20);
    }
  }

  public void release() throws IOException {
    channel.close();
  }
}
