package dev.penstock.kernel.hosted;

import dev.penstock.kernel.error.ErrorChannel;
import dev.penstock.kernel.log.EpochInput;
import dev.penstock.kernel.log.PackedOutput;
import dev.penstock.kernel.log.Written;
import dev.penstock.kernel.node.Nodes;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import scala.reflect.ClassTag$;

/** What members without operators make of the input of an epoch: each task writes the rows that it makes of its own. */
final class OutputRdd extends RDD<Written> {
  private static final long serialVersionUID = 1L;

  private record Piece(int index, EpochInput input) implements Partition {}

  private final HostTable.Reference table;
  private final ErrorChannel errors;
  private final PackedOutput output;
  private final transient List<EpochInput> inputs;

  /** @param inputs one for each task */
  OutputRdd(
      SparkContext spark, HostTable.Reference table, ErrorChannel errors, List<EpochInput> inputs, PackedOutput output) {
    super(spark, Nodes.list(List.of()), ClassTag$.MODULE$.apply(Written.class));
    this.table = table;
    this.errors = errors;
    this.inputs = inputs;
    this.output = output;
  }

  @Override
  public Partition[] getPartitions() {
    Partition[] out = new Partition[inputs.size()];
    for (int i = 0; i < out.length; i++) {
      out[i] = new Piece(i, inputs.get(i));
    }
    return out;
  }

  @Override
  public scala.collection.Iterator<Written> compute(Partition split, TaskContext context) {
    try (PackedOutput.Task out = output.task();
        Fan fan = new Fan(table.get(), errors, ((Piece) split).input, out::write)) {
      boolean done = false;
      try {
        if (fan.hasNext()) {
          throw new IllegalStateException("a member has an operator");
        }
        Written written = out.finish();
        done = true;
        return scala.collection.Iterator$.MODULE$.single(written);
      } finally {
        if (!done) {
          out.discard();
        }
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
