package dev.penstock.kernel.aggregate;

import dev.penstock.kernel.state.StateBytes;
import java.io.Serializable;

/**
 * The state of one aggregate for a group: a sum over a Z-set, so rows can be added and retracted, and sums merged.
 *
 * <p>An accumulator represents rows or changes alike; merging changes into rows gives the rows
 * after the changes. Merging is associative; if the order of arrival matters, the receiver's rows are earlier.
 */
public interface Accumulator {
  /** Adds {@code weight} copies of a row whose arguments are {@code args}; weight may be negative. */
  void add(Object[] args, long weight);

  /** Adds {@code other}, an accumulator of the same aggregate, which is not changed. */
  void merge(Accumulator other);

  void write(StateBytes.Out out);

  void read(StateBytes.In in);

  /** The current value of the aggregate, in wire form (see {@code Wire}). */
  Object result();

  /** The number of entries, to bound memory; 1 if the size is fixed. */
  default int size() {
    return 1;
  }

  /** Creates empty accumulators. */
  interface Factory extends Serializable {
    Accumulator create();
  }
}
