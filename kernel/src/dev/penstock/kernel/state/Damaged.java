package dev.penstock.kernel.state;

import java.io.IOException;
import java.nio.file.Path;

/** A file does not have its checksum. Python knows the error by its text, and what to do by the file. */
public final class Damaged extends IOException {
  private static final long serialVersionUID = 1L;

  /** @param lost what nobody knows any more, as a sentence */
  public Damaged(Path file, String lost) {
    super("PSK-6001 {" + file + " is damaged. " + lost + "}");
  }

  /** Rows at a place in a file are lost. */
  public Damaged(String file, long offset, int rows, long lsn) {
    super("PSK-6001 {" + file + " is damaged at offset " + offset + ": the " + rows + " rows of commit " + lsn + " are lost.}");
  }
}
