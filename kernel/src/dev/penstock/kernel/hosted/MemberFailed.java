package dev.penstock.kernel.hosted;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.TaskKilledException;
import org.rocksdb.RocksDBException;

/** The code of one member has failed: its message names the slot, so that the driver knows whom to take out of the job. */
final class MemberFailed extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private MemberFailed(int slot, Throwable cause) {
    super("member " + slot + " of a shared job failed: " + cause, cause);
  }

  /** What is thrown for an error in a member's code. The disk, the state store and the end of a task are nobody's fault. */
  static RuntimeException of(int slot, Throwable error) {
    for (Throwable at = error; at != null; at = at.getCause()) {
      if (at instanceof IOException
          || at instanceof UncheckedIOException
          || at instanceof RocksDBException
          || at instanceof InterruptedException
          || at instanceof TaskKilledException) {
        return error instanceof RuntimeException same ? same : new IllegalStateException(error);
      }
    }
    return new MemberFailed(slot, error);
  }
}
