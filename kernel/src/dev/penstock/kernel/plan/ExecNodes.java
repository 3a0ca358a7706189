package dev.penstock.kernel.plan;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.execution.LeafExecNode;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.UnaryExecNode;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/** Base classes with the methods of physical nodes that Scala would generate. */
final class ExecNodes {
  private ExecNodes() {}

  /** A node that passes through the rows of its child. */
  abstract static class Unary extends SparkPlan implements UnaryExecNode {
    private static final long serialVersionUID = 1L;
    private final SparkPlan child;

    Unary(SparkPlan child) {
      this.child = child;
    }

    @Override
    public RDD<InternalRow> doExecute() {
      return child.execute();
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
    public Seq<Attribute> output() {
      return child.output();
    }

    @Override
    public boolean canEqual(Object other) {
      return other != null && other.getClass() == getClass();
    }
  }

  /** A node with columns and no children. */
  abstract static class Leaf extends SparkPlan implements LeafExecNode {
    private static final long serialVersionUID = 1L;
    private final Seq<Attribute> columns;

    Leaf(Seq<Attribute> columns) {
      this.columns = columns;
    }

    @Override
    public Seq<Attribute> output() {
      return columns;
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
    public boolean canEqual(Object other) {
      return other != null && other.getClass() == getClass();
    }
  }
}
