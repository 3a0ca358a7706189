package dev.penstock.kernel.aggregate;

import dev.penstock.kernel.state.StateBytes;
import java.io.Serializable;

/**
 * What one aggregate keeps of a group: a sum over a Z-set, so that it can be added to, taken from and merged.
 *
 * <p>An accumulator of rows and one of changes are the same thing; merging the changes into the rows gives the rows
 * after the changes. Merging is associative; where order of arrival counts, the receiver came first.
 */
public interface Accumulator {
  /** Adds {@code weight} copies of a row whose arguments are {@code args}; weight may be negative. */
  void add(Object[] args, long weight);

  /** Adds everything of {@code other}, an accumulator of the same aggregate, which stays as it is. */
  void merge(Accumulator other);

  void write(StateBytes.Out out);

  void read(StateBytes.In in);

  /** The value of the aggregate now, as it travels (see {@code Wire}). */
  Object result();

  /** Entries held, for bounding memory; 1 where the size is fixed. */
  default int size() {
    return 1;
  }

  /** Makes empty accumulators. */
  interface Factory extends Serializable {
    Accumulator create();
  }
}
