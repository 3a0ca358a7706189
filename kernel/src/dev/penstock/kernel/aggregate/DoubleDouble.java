package dev.penstock.kernel.aggregate;

import dev.penstock.kernel.state.StateBytes;

/**
 * A sum of doubles kept as an unevaluated pair, about 106 bits, so that added values can be subtracted again.
 *
 * <p>Only finite values may be added: the caller counts NaN and infinities.
 */
final class DoubleDouble {
  double hi;
  double lo;

  DoubleDouble() {}

  DoubleDouble(double hi, double lo) {
    this.hi = hi;
    this.lo = lo;
  }

  void add(double v) {
    double s = hi + v;
    double b = s - hi;
    double e = (hi - (s - b)) + (v - b);
    renormalise(s, lo + e);
  }

  void add(DoubleDouble o) {
    double s = hi + o.hi;
    double b = s - hi;
    double e = (hi - (s - b)) + (o.hi - b);
    double t = lo + o.lo;
    double tb = t - lo;
    double te = (lo - (t - tb)) + (o.lo - tb);
    renormalise(s, e + t);
    renormalise(hi, lo + te);
  }

  /** Adds a · b, exactly before the final rounding. */
  void addProduct(double a, double b) {
    double p = a * b;
    add(p);
    add(Math.fma(a, b, -p));
  }

  DoubleDouble times(DoubleDouble o) {
    double p = hi * o.hi;
    double e = Math.fma(hi, o.hi, -p) + (hi * o.lo + lo * o.hi);
    DoubleDouble r = new DoubleDouble();
    r.renormalise(p, e);
    return r;
  }

  DoubleDouble over(double d) {
    double q = hi / d;
    double r = Math.fma(-q, d, hi) + lo;
    DoubleDouble out = new DoubleDouble();
    out.renormalise(q, r / d);
    return out;
  }

  DoubleDouble minus(DoubleDouble o) {
    DoubleDouble r = new DoubleDouble(hi, lo);
    r.add(new DoubleDouble(-o.hi, -o.lo));
    return r;
  }

  double value() {
    return hi + lo;
  }

  private void renormalise(double s, double e) {
    hi = s + e;
    lo = Double.isInfinite(hi) ? 0 : e - (hi - s);
  }

  void write(StateBytes.Out out) {
    out.real(hi);
    out.real(lo);
  }

  void read(StateBytes.In in) {
    hi = in.real();
    lo = in.real();
  }
}
