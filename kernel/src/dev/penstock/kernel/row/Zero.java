package dev.penstock.kernel.row;

/** Normalises floating-point values as SQL compares them: one zero, one NaN. */
public final class Zero {
  private Zero() {}

  /** {@code v}, with -0.0 as 0.0 and every NaN as the same NaN. */
  public static Object positive(Object v) {
    if (v instanceof Double d) {
      return d == 0 ? (Object) 0.0 : d.isNaN() ? (Object) Double.NaN : d;
    }
    if (v instanceof Float f) {
      return f == 0 ? (Object) 0.0f : f.isNaN() ? (Object) Float.NaN : f;
    }
    return v;
  }
}
