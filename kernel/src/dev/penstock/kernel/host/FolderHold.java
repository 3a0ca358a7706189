package dev.penstock.kernel.host;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/**
 * This JVM's claim on a database folder. When Python is killed its JVM lives for a moment longer and may still write a checkpoint; the
 * next process waits here until that JVM is gone.
 */
public final class FolderHold {
  private final FileChannel channel;

  private FolderHold(FileChannel channel) {
    this.channel = channel;
  }

  /** Takes the claim, or returns null when the time is over. */
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
