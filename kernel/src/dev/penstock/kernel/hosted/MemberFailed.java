package dev.penstock.kernel.hosted;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.TaskKilledException;
import org.rocksdb.RocksDBException;

/** Failure of one member's code. Its message names the slot, so that the driver knows which member to remove from the job. */
final class MemberFailed extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private MemberFailed(int slot, Throwable cause) {
    super("member " + slot + " of a shared job failed: " + cause, cause);
  }

  /** The exception to throw for an error in a member's code. Failures of the disk or the state store and cancelled tasks are not blamed on the member. */
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
