package dev.penstock.kernel.hosted;

import dev.penstock.kernel.node.PlanNode;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import scala.collection.immutable.Seq;

/** The {@link Fan} of one scan of a shared job. */
public final class FanPlan extends PlanNode {
  private final Host.Scan scan;
  private final Seq<Expression> inputs;

  /** @param inputs all columns of the scan: members to come may read any of them */
  public FanPlan(Host.Scan scan, Seq<Expression> inputs, Seq<Attribute> output, LogicalPlan child) {
    super(output, child);
    this.scan = scan;
    this.inputs = inputs;
  }

  Host.Scan scan() {
    return scan;
  }

  @Override
  protected Object[] parts() {
    return new Object[] {scan, inputs};
  }

  @Override
  public LogicalPlan withNewChildInternal(LogicalPlan newChild) {
    return new FanPlan(scan, inputs, output(), newChild);
  }
}
