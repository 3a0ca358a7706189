package dev.penstock.kernel.node;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.UnaryNode;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/** A logical node with one child, and the methods that Scala would generate for it. It produces all output columns that are not the child's. */
public abstract class PlanNode extends LogicalPlan implements UnaryNode {
  private final Seq<Attribute> output;
  private final LogicalPlan child;

  protected PlanNode(Seq<Attribute> output, LogicalPlan child) {
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
  public LogicalPlan child() {
    return child;
  }

  @Override
  public Seq<LogicalPlan> children() {
    return UnaryNode.super.children();
  }

  @Override
  public LogicalPlan withNewChildrenInternal(IndexedSeq<LogicalPlan> children) {
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
