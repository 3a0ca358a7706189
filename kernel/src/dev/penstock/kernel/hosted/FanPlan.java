package dev.penstock.kernel.hosted;

import java.util.ArrayList;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.AttributeSet$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.UnaryNode;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** The {@link Fan} of one scan of a shared job. */
public final class FanPlan extends LogicalPlan implements UnaryNode {
  private final Host.Scan scan;
  private final Seq<Expression> inputs;
  private final Seq<Attribute> output;
  private final LogicalPlan child;

  /** @param inputs all columns of the scan: members to come may read any of them */
  public FanPlan(Host.Scan scan, Seq<Expression> inputs, Seq<Attribute> output, LogicalPlan child) {
    this.scan = scan;
    this.inputs = inputs;
    this.output = output;
    this.child = child;
  }

  Host.Scan scan() {
    return scan;
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
  public LogicalPlan withNewChildInternal(LogicalPlan newChild) {
    return new FanPlan(scan, inputs, output, newChild);
  }

  @Override
  public int productArity() {
    return 4;
  }

  @Override
  public Object productElement(int n) {
    return switch (n) {
      case 0 -> scan;
      case 1 -> inputs;
      case 2 -> output;
      default -> child;
    };
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof FanPlan;
  }
}
