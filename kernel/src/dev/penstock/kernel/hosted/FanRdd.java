package dev.penstock.kernel.hosted;

import dev.penstock.kernel.error.ErrorChannel;
import dev.penstock.kernel.log.EpochInput;
import dev.penstock.kernel.node.Nodes;
import java.util.List;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.util.TaskCompletionListener;
import scala.Product2;
import scala.Tuple2;
import scala.collection.AbstractIterator;
import scala.reflect.ClassTag$;

/** What the members make of the input of an epoch, before the shuffle: each row behind the partition that it goes to. */
final class FanRdd extends RDD<Product2<Object, InternalRow>> {
  private static final long serialVersionUID = 1L;

  private record Piece(int index, EpochInput input) implements Partition {}

  private final HostTable.Reference table;
  private final ErrorChannel errors;
  private final int partitions;
  private final transient List<EpochInput> inputs;

  /** @param inputs one for each task */
  FanRdd(SparkContext spark, HostTable.Reference table, ErrorChannel errors, List<EpochInput> inputs, int partitions) {
    super(spark, Nodes.list(List.of()), ClassTag$.MODULE$.apply(Product2.class));
    this.table = table;
    this.errors = errors;
    this.inputs = inputs;
    this.partitions = partitions;
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
  public scala.collection.Iterator<Product2<Object, InternalRow>> compute(Partition split, TaskContext context) {
    Fan fan = new Fan(table.get(), errors, ((Piece) split).input, null);
    context.addTaskCompletionListener((TaskCompletionListener) task -> fan.close());
    UnsafeProjection pack = UnsafeProjection.create(Packed.SCHEMA);
    return new AbstractIterator<>() {
      @Override
      public boolean hasNext() {
        return fan.hasNext();
      }

      @Override
      public Product2<Object, InternalRow> next() {
        Packed one = fan.next();
        return new Tuple2<>(one.partition(partitions), pack.apply(one.travels()));
      }
    };
  }
}
