package dev.penstock.kernel.aggregate;

import dev.penstock.kernel.state.StateBytes;

/**
 * STDDEV, VARIANCE, COVAR and CORR from sums of powers, kept as {@link DoubleDouble} so that they survive retraction.
 *
 * <p>Rows with a NULL argument are ignored. A sample statistic of one row and any statistic of none is NULL, as is the
 * correlation with a constant. NaN or an infinity among the values gives NaN until it is retracted. State of fixed size.
 */
final class Moments implements Accumulator {
  enum Kind { VAR_SAMP, VAR_POP, STDDEV_SAMP, STDDEV_POP, COVAR_SAMP, COVAR_POP, CORR }

  private final Kind kind;
  private final boolean pairs;
  private final DoubleDouble x = new DoubleDouble();
  private final DoubleDouble y = new DoubleDouble();
  private final DoubleDouble xx = new DoubleDouble();
  private final DoubleDouble yy = new DoubleDouble();
  private final DoubleDouble xy = new DoubleDouble();
  private long n;
  private long unbounded;

  Moments(Kind kind) {
    this.kind = kind;
    this.pairs = kind == Kind.COVAR_SAMP || kind == Kind.COVAR_POP || kind == Kind.CORR;
  }

  @Override
  public void add(Object[] args, long weight) {
    if (args[0] == null || pairs && args[1] == null) {
      return;
    }
    double a = ((Number) args[0]).doubleValue();
    double b = pairs ? ((Number) args[1]).doubleValue() : 0;
    n += weight;
    if (!Double.isFinite(a) || !Double.isFinite(b)) {
      unbounded += weight;
      return;
    }
    x.addProduct(a, weight);
    power(xx, a, a, weight);
    if (pairs) {
      y.addProduct(b, weight);
      power(yy, b, b, weight);
      power(xy, a, b, weight);
    }
  }

  private static void power(DoubleDouble into, double a, double b, long weight) {
    double p = a * b;
    into.addProduct(p, weight);
    into.addProduct(Math.fma(a, b, -p), weight);
  }

  @Override
  public void merge(Accumulator other) {
    Moments o = (Moments) other;
    n += o.n;
    unbounded += o.unbounded;
    x.add(o.x);
    xx.add(o.xx);
    if (pairs) {
      y.add(o.y);
      yy.add(o.yy);
      xy.add(o.xy);
    }
  }

  @Override
  public void write(StateBytes.Out out) {
    out.varint(n);
    out.varint(unbounded);
    x.write(out);
    xx.write(out);
    if (pairs) {
      y.write(out);
      yy.write(out);
      xy.write(out);
    }
  }

  @Override
  public void read(StateBytes.In in) {
    n = in.varint();
    unbounded = in.varint();
    x.read(in);
    xx.read(in);
    if (pairs) {
      y.read(in);
      yy.read(in);
      xy.read(in);
    }
  }

  private double central(DoubleDouble product, DoubleDouble a, DoubleDouble b) {
    return product.minus(a.times(b).over(n)).value();
  }

  @Override
  public Object result() {
    boolean sample = kind == Kind.VAR_SAMP || kind == Kind.STDDEV_SAMP || kind == Kind.COVAR_SAMP || kind == Kind.CORR;
    if (n <= (sample ? 1 : 0)) {
      return null;
    }
    if (unbounded > 0) {
      return Double.NaN;
    }
    double variance = pairs ? 0 : Math.max(0, central(xx, x, x));
    return switch (kind) {
      case VAR_SAMP -> variance / (n - 1);
      case VAR_POP -> variance / n;
      case STDDEV_SAMP -> Math.sqrt(variance / (n - 1));
      case STDDEV_POP -> Math.sqrt(variance / n);
      case COVAR_SAMP -> central(xy, x, y) / (n - 1);
      case COVAR_POP -> central(xy, x, y) / n;
      case CORR -> correlation();
    };
  }

  private Object correlation() {
    double a = central(xx, x, x);
    double b = central(yy, y, y);
    return a <= 0 || b <= 0 ? null : (Object) (central(xy, x, y) / Math.sqrt(a * b));
  }
}
