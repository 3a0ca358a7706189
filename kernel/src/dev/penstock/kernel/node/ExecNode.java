package dev.penstock.kernel.node;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.UnaryExecNode;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/** A physical node with one child, and the methods that Scala would generate for it. It produces all output columns that are not the child's. */
public abstract class ExecNode extends SparkPlan implements UnaryExecNode {
  private static final long serialVersionUID = 1L;
  private final Seq<Attribute> output;
  private final SparkPlan child;

  protected ExecNode(Seq<Attribute> output, SparkPlan child) {
    this.output = output;
    this.child = child;
  }

  /** Its other constructor arguments. Spark copies a node with the constructor that takes these, then the output and the child. */
  protected abstract Object[] parts();

  @Override
  public Seq<Attribute> output() {
    return output;
  }

  @Override
  public AttributeSet producedAttributes() {
    return Nodes.produced(output, child.outputSet());
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
  public int productArity() {
    return parts().length + 2;
  }

  @Override
  public Object productElement(int n) {
    Object[] parts = parts();
    return n < parts.length ? parts[n] : n == parts.length ? output : child;
  }

  @Override
  public boolean canEqual(Object other) {
    return other != null && other.getClass() == getClass();
  }
}
