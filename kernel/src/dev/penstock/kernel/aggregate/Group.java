package dev.penstock.kernel.aggregate;

import dev.penstock.kernel.state.StateBytes;
import java.util.List;
import org.apache.spark.sql.Row;

/** The rows of a group, or changes to them: the sum of their weights and an accumulator for each aggregate. */
final class Group {
  private final List<AggFunction> functions;
  final Accumulator[] accumulators;
  long weight;

  Group(List<AggFunction> functions) {
    this.functions = functions;
    this.accumulators = new Accumulator[functions.size()];
    for (int i = 0; i < accumulators.length; i++) {
      accumulators[i] = functions.get(i).create();
    }
  }

  /** An empty group that has only the heads of its large aggregates, see {@link Kept}. */
  static Group kept(List<AggFunction> functions) {
    Group group = new Group(functions);
    for (int i = 0; i < group.accumulators.length; i++) {
      Kept kept = functions.get(i).kept();
      if (kept != null) {
        group.accumulators[i] = kept.head();
      }
    }
    return group;
  }

  void add(Row row, long rowWeight) {
    if (rowWeight == 0) {
      return;
    }
    weight += rowWeight;
    for (int i = 0; i < accumulators.length; i++) {
      accumulators[i].add(functions.get(i).arguments(row), rowWeight);
    }
  }

  void merge(Group other) {
    weight += other.weight;
    for (int i = 0; i < accumulators.length; i++) {
      accumulators[i].merge(other.accumulators[i]);
    }
  }

  /** Applies changes to a group created by {@link #kept}. */
  void apply(Group changes) {
    weight += changes.weight;
    for (int i = 0; i < accumulators.length; i++) {
      Kept kept = functions.get(i).kept();
      if (kept == null) {
        accumulators[i].merge(changes.accumulators[i]);
      } else {
        kept.apply(accumulators[i], changes.accumulators[i]);
      }
    }
  }

  void write(StateBytes.Out out) {
    out.varint(weight);
    for (Accumulator a : accumulators) {
      a.write(out);
    }
  }

  Group read(StateBytes.In in) {
    weight = in.varint();
    for (Accumulator a : accumulators) {
      a.read(in);
    }
    return this;
  }

  int size() {
    int size = 1;
    for (Accumulator a : accumulators) {
      size += a.size();
    }
    return size;
  }

  Object[] results() {
    Object[] out = new Object[accumulators.length];
    for (int i = 0; i < out.length; i++) {
      out[i] = functions.get(i).result(accumulators[i]);
    }
    return out;
  }
}
