package dev.penstock.kernel.hosted;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.AttributeSet$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.UnaryExecNode;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Runs the {@link Fan} of one scan over its columnar batches. */
public final class FanExec extends SparkPlan implements UnaryExecNode {
  private static final long serialVersionUID = 1L;

  private final Host.Scan scan;
  private final Seq<Attribute> output;
  private final SparkPlan child;

  public FanExec(Host.Scan scan, Seq<Attribute> output, SparkPlan child) {
    this.scan = scan;
    this.output = output;
    this.child = child;
  }

  @Override
  public Seq<Attribute> output() {
    return output;
  }

  @Override
  public AttributeSet producedAttributes() {
    return AttributeSet$.MODULE$.apply(
        CollectionConverters.asScala(new ArrayList<Expression>(CollectionConverters.asJava(output))));
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
    SparkPlan source = columnar(child);
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
  public SparkPlan child() {
    return child;
  }

  @Override
  public Seq<SparkPlan> children() {
    return UnaryExecNode.super.children();
  }

  @Override
  public SparkPlan withNewChildrenInternal(IndexedSeq<SparkPlan> children) {
    return withNewChildInternal(children.head());
  }

  @Override
  public SparkPlan withNewChildInternal(SparkPlan newChild) {
    return new FanExec(scan, output, newChild);
  }

  @Override
  public int productArity() {
    return 3;
  }

  @Override
  public Object productElement(int n) {
    return switch (n) {
      case 0 -> scan;
      case 1 -> output;
      default -> child;
    };
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof FanExec;
  }
}
