package dev.penstock.kernel.aggregate;

import dev.penstock.kernel.state.StateBytes;
import java.util.function.ToLongFunction;

/** Accumulators that only count: COUNT, COUNT_IF, BOOL_AND/OR and the bitwise aggregates. State of fixed size. */
final class Counting {
  private Counting() {}

  /** COUNT: rows in which no argument is NULL; without arguments every row. */
  static final class Count implements Accumulator {
    private long n;

    @Override
    public void add(Object[] args, long weight) {
      for (Object a : args) {
        if (a == null) {
          return;
        }
      }
      n += weight;
    }

    @Override
    public void merge(Accumulator other) {
      n += ((Count) other).n;
    }

    @Override
    public void write(StateBytes.Out out) {
      out.varint(n);
    }

    @Override
    public void read(StateBytes.In in) {
      n = in.varint();
    }

    @Override
    public Object result() {
      return n;
    }
  }

  /** Counts of true and false; the kind determines the result. NULLs are ignored; the result over only NULLs is NULL. */
  static final class Bools implements Accumulator {
    private enum Kind { AND, OR, COUNT_IF }

    private final Kind kind;
    private long yes;
    private long no;

    private Bools(Kind kind) {
      this.kind = kind;
    }

    static Bools and() {
      return new Bools(Kind.AND);
    }

    static Bools or() {
      return new Bools(Kind.OR);
    }

    static Bools countIf() {
      return new Bools(Kind.COUNT_IF);
    }

    @Override
    public void add(Object[] args, long weight) {
      if (args[0] != null) {
        if ((Boolean) args[0]) {
          yes += weight;
        } else {
          no += weight;
        }
      }
    }

    @Override
    public void merge(Accumulator other) {
      yes += ((Bools) other).yes;
      no += ((Bools) other).no;
    }

    @Override
    public void write(StateBytes.Out out) {
      out.varint(yes);
      out.varint(no);
    }

    @Override
    public void read(StateBytes.In in) {
      yes = in.varint();
      no = in.varint();
    }

    @Override
    public Object result() {
      if (kind == Kind.COUNT_IF) {
        return yes;
      }
      if (yes + no <= 0) {
        return null;
      }
      return kind == Kind.AND ? no <= 0 : yes > 0;
    }
  }

  /** BIT_AND, BIT_OR, BIT_XOR from the number of ones in each position. NULLs are ignored. */
  static final class Bits implements Accumulator {
    private final ToLongFunction<Bits> finish;
    private final long[] ones = new long[Long.SIZE];
    private long n;

    private Bits(ToLongFunction<Bits> finish) {
      this.finish = finish;
    }

    static Bits and() {
      return new Bits(b -> b.where(c -> c == b.n ? 1 : 0));
    }

    static Bits or() {
      return new Bits(b -> b.where(c -> c > 0 ? 1 : 0));
    }

    static Bits xor() {
      return new Bits(b -> b.where(c -> c & 1));
    }

    private long where(java.util.function.LongUnaryOperator bit) {
      long out = 0;
      for (int i = 0; i < ones.length; i++) {
        out |= bit.applyAsLong(ones[i]) << i;
      }
      return out;
    }

    @Override
    public void add(Object[] args, long weight) {
      if (args[0] != null) {
        n += weight;
        for (long v = ((Number) args[0]).longValue(); v != 0; v &= v - 1) {
          ones[Long.numberOfTrailingZeros(v)] += weight;
        }
      }
    }

    @Override
    public void merge(Accumulator other) {
      Bits o = (Bits) other;
      n += o.n;
      for (int i = 0; i < ones.length; i++) {
        ones[i] += o.ones[i];
      }
    }

    @Override
    public void write(StateBytes.Out out) {
      out.varint(n);
      for (long c : ones) {
        out.varint(c);
      }
    }

    @Override
    public void read(StateBytes.In in) {
      n = in.varint();
      for (int i = 0; i < ones.length; i++) {
        ones[i] = in.varint();
      }
    }

    @Override
    public Object result() {
      return n <= 0 ? null : (Object) finish.applyAsLong(this);
    }
  }
}
