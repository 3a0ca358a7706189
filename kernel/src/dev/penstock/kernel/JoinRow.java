package dev.penstock.kernel;

import java.util.Arrays;

/** A packed row, alone or with a time or another packed row beside it, as a key in memory. */
record JoinRow(byte[] row, byte[] beside, long at) {
  static JoinRow of(byte[] row, long at) {
    return new JoinRow(row, null, at);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof JoinRow that
        && at == that.at && Arrays.equals(row, that.row) && Arrays.equals(beside, that.beside);
  }

  @Override
  public int hashCode() {
    return 31 * (31 * Arrays.hashCode(row) + Arrays.hashCode(beside)) + Long.hashCode(at);
  }
}
