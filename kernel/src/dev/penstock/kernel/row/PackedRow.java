package dev.penstock.kernel.row;

import java.util.Arrays;

/** A packed row, alone or with a time or another packed row, as a key in memory. */
public record PackedRow(byte[] row, byte[] beside, long at) {
  public static PackedRow of(byte[] row, long at) {
    return new PackedRow(row, null, at);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof PackedRow that
        && at == that.at && Arrays.equals(row, that.row) && Arrays.equals(beside, that.beside);
  }

  @Override
  public int hashCode() {
    return 31 * (31 * Arrays.hashCode(row) + Arrays.hashCode(beside)) + Long.hashCode(at);
  }
}
