package dev.penstock.kernel.join;

import dev.penstock.kernel.node.ExecNode;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.immutable.Seq;

/** Makes the {@link Bundle}s of each task. */
public final class BundleExec extends ExecNode {
  private static final long serialVersionUID = 1L;

  public BundleExec(Seq<Attribute> output, SparkPlan child) {
    super(output, child);
  }

  @Override
  public RDD<InternalRow> doExecute() {
    return child().execute().toJavaRDD().mapPartitions(Bundle::all).rdd();
  }

  @Override
  protected Object[] parts() {
    return new Object[] {};
  }

  @Override
  public SparkPlan withNewChildInternal(SparkPlan newChild) {
    return new BundleExec(output(), newChild);
  }
}
