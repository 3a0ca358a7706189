package dev.penstock.kernel.log;

import java.io.IOException;

/** Rows in a file that do not have their checksum. Python knows the error by this text. */
final class Damaged extends IOException {
  private static final long serialVersionUID = 1L;

  Damaged(LogSlice slice) {
    super("PSK-6001: " + slice.path + " is damaged at offset " + slice.offset + ": the " + slice.rows + " rows of commit " + slice.lsn + " are lost.");
  }
}
