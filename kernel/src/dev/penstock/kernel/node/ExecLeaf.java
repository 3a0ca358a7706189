package dev.penstock.kernel.node;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.execution.LeafExecNode;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/** A physical node without children, and the methods that Scala would generate for it. */
public abstract class ExecLeaf extends SparkPlan implements LeafExecNode {
  private static final long serialVersionUID = 1L;
  private final Seq<Attribute> output;

  protected ExecLeaf(Seq<Attribute> output) {
    this.output = output;
  }

  /** Its constructor arguments besides the output. Spark copies a node with the constructor that takes these, then the output. */
  protected abstract Object[] parts();

  @Override
  public Seq<Attribute> output() {
    return output;
  }

  @Override
  public AttributeSet producedAttributes() {
    return outputSet();
  }

  @Override
  @SuppressWarnings("unchecked")
  public Seq<SparkPlan> children() {
    return (Seq<SparkPlan>) (Seq<?>) Nil$.MODULE$;
  }

  @Override
  public SparkPlan withNewChildrenInternal(IndexedSeq<SparkPlan> children) {
    return this;
  }

  @Override
  public int productArity() {
    return parts().length + 1;
  }

  @Override
  public Object productElement(int n) {
    Object[] parts = parts();
    return n < parts.length ? parts[n] : output;
  }

  @Override
  public boolean canEqual(Object other) {
    return other != null && other.getClass() == getClass();
  }
}
