package dev.penstock.kernel.aggregate;

import dev.penstock.kernel.state.StateBytes;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import org.apache.spark.sql.types.DecimalType;

/**
 * SUM and AVG, with state of fixed size. NULLs are ignored; without a value the result is NULL.
 *
 * <p>Integers are summed in 128 bits and decimals without bound. Only the final value can overflow, so the order of insertions and retractions
 * does not matter. Doubles are summed as {@link DoubleDouble}; NaN and infinities are counted, so that
 * retracting them restores the finite sum.
 */
final class Sums {
  private Sums() {}

  /** What to do when the result does not fit its type. */
  enum Overflow { ERROR, WRAP, NULL }

  /** Over TINYINT to BIGINT, and over intervals as micros or months. */
  static final class Longs implements Accumulator {
    /** SUM, AVG as double, or AVG rounded half up to an integer (intervals). */
    enum Kind { SUM, AVG, AVG_ROUNDED }

    private static final BigInteger LOW = BigInteger.ONE.shiftLeft(64);

    private final Kind kind;
    private final Overflow overflow;
    private long n;
    private long hi;
    private long lo;

    Longs(Kind kind, Overflow overflow) {
      this.kind = kind;
      this.overflow = overflow;
    }

    @Override
    public void add(Object[] args, long weight) {
      if (args[0] != null) {
        long v = ((Number) args[0]).longValue();
        n += weight;
        plus(Math.multiplyHigh(v, weight), v * weight);
      }
    }

    private void plus(long high, long low) {
      long before = lo;
      lo += low;
      hi += high + (Long.compareUnsigned(lo, before) < 0 ? 1 : 0);
    }

    @Override
    public void merge(Accumulator other) {
      Longs o = (Longs) other;
      n += o.n;
      plus(o.hi, o.lo);
    }

    @Override
    public void write(StateBytes.Out out) {
      out.varint(n);
      out.varint(hi);
      out.varint(lo);
    }

    @Override
    public void read(StateBytes.In in) {
      n = in.varint();
      hi = in.varint();
      lo = in.varint();
    }

    private BigInteger total() {
      BigInteger low = BigInteger.valueOf(lo);
      return BigInteger.valueOf(hi).shiftLeft(64).add(lo < 0 ? low.add(LOW) : low);
    }

    @Override
    public Object result() {
      if (n <= 0) {
        return null;
      }
      boolean fits = hi == lo >> 63;
      if (kind == Kind.AVG) {
        return (fits ? (double) lo : total().doubleValue()) / n;
      }
      if (kind == Kind.AVG_ROUNDED) {
        return new BigDecimal(total()).divide(BigDecimal.valueOf(n), 0, RoundingMode.HALF_UP).longValueExact();
      }
      if (fits || overflow == Overflow.WRAP) {
        return lo;
      }
      if (overflow == Overflow.NULL) {
        return null;
      }
      throw new ArithmeticException("[ARITHMETIC_OVERFLOW] the sum does not fit into BIGINT");
    }
  }

  /** Over DECIMAL, exactly; AVG is rounded half up to the result's scale. */
  static final class Decimals implements Accumulator {
    private final boolean average;
    private final int scale;
    private final DecimalType type;
    private final Overflow overflow;
    private long n;
    private BigInteger sum = BigInteger.ZERO;

    Decimals(boolean average, int scale, DecimalType type, Overflow overflow) {
      this.average = average;
      this.scale = scale;
      this.type = type;
      this.overflow = overflow;
    }

    @Override
    public void add(Object[] args, long weight) {
      if (args[0] != null) {
        n += weight;
        BigInteger v = ((BigDecimal) args[0]).setScale(scale, RoundingMode.UNNECESSARY).unscaledValue();
        sum = sum.add(weight == 1 ? v : weight == -1 ? v.negate() : v.multiply(BigInteger.valueOf(weight)));
      }
    }

    @Override
    public void merge(Accumulator other) {
      n += ((Decimals) other).n;
      sum = sum.add(((Decimals) other).sum);
    }

    @Override
    public void write(StateBytes.Out out) {
      out.varint(n);
      out.integer(sum);
    }

    @Override
    public void read(StateBytes.In in) {
      n = in.varint();
      sum = in.integer();
    }

    @Override
    public Object result() {
      if (n <= 0) {
        return null;
      }
      BigDecimal total = new BigDecimal(sum, scale);
      BigDecimal out = average
          ? total.divide(BigDecimal.valueOf(n), type.scale(), RoundingMode.HALF_UP)
          : total.setScale(type.scale(), RoundingMode.HALF_UP);
      if (out.precision() <= type.precision()) {
        return out;
      }
      if (overflow == Overflow.ERROR) {
        throw new ArithmeticException("[ARITHMETIC_OVERFLOW] the sum does not fit into " + type.sql());
      }
      return null;
    }
  }

  /** Over FLOAT and DOUBLE. */
  static final class Doubles implements Accumulator {
    private final boolean average;
    private final DoubleDouble sum = new DoubleDouble();
    private long n;
    private long nan;
    private long up;
    private long down;

    Doubles(boolean average) {
      this.average = average;
    }

    @Override
    public void add(Object[] args, long weight) {
      if (args[0] == null) {
        return;
      }
      double v = ((Number) args[0]).doubleValue();
      n += weight;
      if (Double.isNaN(v)) {
        nan += weight;
      } else if (Double.isInfinite(v)) {
        if (v > 0) {
          up += weight;
        } else {
          down += weight;
        }
      } else if (weight == 1 || weight == -1) {
        sum.add(weight * v);
      } else {
        sum.addProduct(v, weight);
      }
    }

    @Override
    public void merge(Accumulator other) {
      Doubles o = (Doubles) other;
      n += o.n;
      nan += o.nan;
      up += o.up;
      down += o.down;
      sum.add(o.sum);
    }

    @Override
    public void write(StateBytes.Out out) {
      out.varint(n);
      out.varint(nan);
      out.varint(up);
      out.varint(down);
      sum.write(out);
    }

    @Override
    public void read(StateBytes.In in) {
      n = in.varint();
      nan = in.varint();
      up = in.varint();
      down = in.varint();
      sum.read(in);
    }

    @Override
    public Object result() {
      if (n <= 0) {
        return null;
      }
      double total = nan > 0 || up > 0 && down > 0 ? Double.NaN
          : up > 0 ? Double.POSITIVE_INFINITY
          : down > 0 ? Double.NEGATIVE_INFINITY : sum.value() + 0.0;
      return average ? total / n : total;
    }
  }
}
