package dev.penstock.kernel.hosted;

import dev.penstock.kernel.error.ErrorChannel;
import dev.penstock.kernel.log.EpochInput;
import java.util.List;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.util.TaskCompletionListener;
import scala.Product2;
import scala.Tuple2;
import scala.collection.AbstractIterator;

/** The members' output for the input of an epoch, before the shuffle: pairs of target partition and row. */
final class FanRdd extends InputRdd<Product2<Object, InternalRow>> {
  private static final long serialVersionUID = 1L;

  private final int partitions;

  /** @param inputs one for each task */
  FanRdd(SparkContext spark, HostTable.Reference table, ErrorChannel errors, List<EpochInput> inputs, int partitions) {
    super(spark, Product2.class, table, errors, inputs);
    this.partitions = partitions;
  }

  @Override
  public scala.collection.Iterator<Product2<Object, InternalRow>> compute(Partition split, TaskContext context) {
    Fan fan = fan(split, null);
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
