package dev.penstock.kernel.aggregate;

import dev.penstock.kernel.state.StateBytes;

/** An aggregate over the distinct values of a group, which it holds. NULL counts as a value; the aggregate decides how to treat it. */
final class Distinct implements Accumulator {
  private final Bag values;
  private final Accumulator.Factory inner;

  Distinct(Bag values, Accumulator.Factory inner) {
    this.values = values;
    this.inner = inner;
  }

  Bag values() {
    return values;
  }

  @Override
  public void add(Object[] args, long weight) {
    values.add(args, weight);
  }

  @Override
  public void merge(Accumulator other) {
    values.merge(((Distinct) other).values);
  }

  @Override
  public void write(StateBytes.Out out) {
    values.write(out);
  }

  @Override
  public void read(StateBytes.In in) {
    values.read(in);
  }

  @Override
  public int size() {
    return values.size();
  }

  @Override
  public Object result() {
    Accumulator sum = inner.create();
    values.counts().forEach((key, n) -> {
      if (n > 0) {
        sum.add(values.decode(key), 1);
      }
    });
    return sum.result();
  }
}
