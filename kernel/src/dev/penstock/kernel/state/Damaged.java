package dev.penstock.kernel.state;

import java.io.IOException;
import java.nio.file.Path;

/** A file fails its checksum. Python recognises the error by its text and chooses the remedy by the file. */
public final class Damaged extends IOException {
  private static final long serialVersionUID = 1L;

  /** @param lost a sentence that names the lost information */
  public Damaged(Path file, String lost) {
    super("PSK-6001 {" + file + " is damaged. " + lost + "}");
  }

  /** Rows at a place in a file are lost. */
  public Damaged(String file, long offset, int rows, long lsn) {
    super("PSK-6001 {" + file + " is damaged at offset " + offset + ": the " + rows + " rows of commit " + lsn + " are lost.}");
  }
}
