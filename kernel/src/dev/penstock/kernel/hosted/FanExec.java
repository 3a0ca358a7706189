package dev.penstock.kernel.hosted;

import dev.penstock.kernel.node.ExecNode;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Runs the {@link Fan} of one scan over its columnar batches. */
public final class FanExec extends ExecNode {
  private static final long serialVersionUID = 1L;

  private final Host.Scan scan;

  public FanExec(Host.Scan scan, Seq<Attribute> output, SparkPlan child) {
    super(output, child);
    this.scan = scan;
  }

  /** The scan itself, below what Spark puts between to make rows of its batches. */
  private static SparkPlan columnar(SparkPlan plan) {
    SparkPlan at = plan;
    while (!at.supportsColumnar() && !at.children().isEmpty()) {
      at = at.children().head();
    }
    return at;
  }

  @Override
  public RDD<InternalRow> doExecute() {
    SparkPlan source = columnar(child());
    if (!source.supportsColumnar()) {
      // A scan without rows in this epoch.
      return source.execute();
    }
    List<String> columns = new ArrayList<>();
    CollectionConverters.asJava(source.output()).forEach(a -> columns.add(a.name()));
    Fan fan = scan.fan(columns);
    FlatMapFunction<Iterator<ColumnarBatch>, InternalRow> function = fan::over;
    return source.executeColumnar().toJavaRDD().mapPartitions(function).rdd();
  }

  @Override
  protected Object[] parts() {
    return new Object[] {scan};
  }

  @Override
  public SparkPlan withNewChildInternal(SparkPlan newChild) {
    return new FanExec(scan, output(), newChild);
  }
}
