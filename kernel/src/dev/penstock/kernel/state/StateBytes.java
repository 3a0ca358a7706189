package dev.penstock.kernel.state;

import java.math.BigInteger;
import java.util.Arrays;

/**
 * The byte form of accumulators, the same in the shuffle and in the state store.
 *
 * <p>Integers are zig-zag varints (small counts take one byte), doubles their eight bits, everything else a length and
 * its bytes. Values must be read in the order in which they were written; the format is not self-describing.
 */
public final class StateBytes {
  private StateBytes() {}

  public static final class Out {
    private byte[] bytes = new byte[64];
    private int count;

    public byte[] toByteArray() {
      return Arrays.copyOf(bytes, count);
    }

    public void reset() {
      count = 0;
    }

    private void reserve(int more) {
      if (count + more > bytes.length) {
        bytes = Arrays.copyOf(bytes, Math.max(2 * bytes.length, count + more));
      }
    }

    public void bool(boolean v) {
      reserve(1);
      bytes[count++] = (byte) (v ? 1 : 0);
    }

    public void varint(long value) {
      reserve(10);
      long v = (value << 1) ^ (value >> 63);
      while ((v & ~0x7FL) != 0) {
        bytes[count++] = (byte) (v & 0x7F | 0x80);
        v >>>= 7;
      }
      bytes[count++] = (byte) v;
    }

    void fixed(long v) {
      reserve(8);
      for (int shift = 56; shift >= 0; shift -= 8) {
        bytes[count++] = (byte) (v >>> shift);
      }
    }

    public void real(double v) {
      fixed(Double.doubleToLongBits(v));
    }

    public void blob(byte[] v) {
      varint(v.length);
      reserve(v.length);
      System.arraycopy(v, 0, bytes, count, v.length);
      count += v.length;
    }

    public void integer(BigInteger v) {
      blob(v.toByteArray());
    }
  }

  public static final class In {
    private final byte[] bytes;
    private int position;

    public In(byte[] bytes) {
      this.bytes = bytes;
    }

    public boolean bool() {
      return bytes[position++] != 0;
    }

    public long varint() {
      long v = 0;
      for (int shift = 0; ; shift += 7) {
        byte b = bytes[position++];
        v |= (long) (b & 0x7F) << shift;
        if (b >= 0) {
          return (v >>> 1) ^ -(v & 1);
        }
      }
    }

    long fixed() {
      long v = 0;
      for (int i = 0; i < 8; i++) {
        v = v << 8 | bytes[position++] & 0xFF;
      }
      return v;
    }

    public double real() {
      return Double.longBitsToDouble(fixed());
    }

    public byte[] blob() {
      int length = (int) varint();
      position += length;
      return Arrays.copyOfRange(bytes, position - length, position);
    }

    public BigInteger integer() {
      return new BigInteger(blob());
    }
  }
}
