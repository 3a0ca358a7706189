package dev.penstock.kernel.hosted;

import dev.penstock.kernel.error.ErrorChannel;
import dev.penstock.kernel.log.EpochInput;
import dev.penstock.kernel.node.Nodes;
import java.util.List;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.rdd.RDD;
import scala.reflect.ClassTag$;

/** The members' output for the input of an epoch, with one partition per part of the input. */
abstract class InputRdd<T> extends RDD<T> {
  private static final long serialVersionUID = 1L;

  private record Piece(int index, EpochInput input) implements Partition {}

  private final HostTable.Reference table;
  private final ErrorChannel errors;
  private final transient List<EpochInput> inputs;

  /** @param inputs one for each task */
  InputRdd(SparkContext spark, Class<?> rows, HostTable.Reference table, ErrorChannel errors, List<EpochInput> inputs) {
    super(spark, Nodes.list(List.of()), ClassTag$.MODULE$.apply(rows));
    this.table = table;
    this.errors = errors;
    this.inputs = inputs;
  }

  @Override
  public Partition[] getPartitions() {
    Partition[] out = new Partition[inputs.size()];
    for (int i = 0; i < out.length; i++) {
      out[i] = new Piece(i, inputs.get(i));
    }
    return out;
  }

  /** The rows of a partition. Rows that members emit without an operator go to {@code written} if it is not null. */
  Fan fan(Partition split, Fan.Output written) {
    return new Fan(table.get(), errors, ((Piece) split).input, written);
  }
}
