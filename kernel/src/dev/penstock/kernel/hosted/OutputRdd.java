package dev.penstock.kernel.hosted;

import dev.penstock.kernel.error.ErrorChannel;
import dev.penstock.kernel.log.EpochInput;
import dev.penstock.kernel.log.PackedOutput;
import dev.penstock.kernel.log.Written;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;

/** The output of members without operators for the input of an epoch: each task writes its own rows. */
final class OutputRdd extends InputRdd<Written> {
  private static final long serialVersionUID = 1L;

  private final PackedOutput output;

  /** @param inputs one for each task */
  OutputRdd(
      SparkContext spark, HostTable.Reference table, ErrorChannel errors, List<EpochInput> inputs, PackedOutput output) {
    super(spark, Written.class, table, errors, inputs);
    this.output = output;
  }

  @Override
  public scala.collection.Iterator<Written> compute(Partition split, TaskContext context) {
    try (PackedOutput.Task out = output.task();
        Fan fan = fan(split, out::write)) {
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
