package dev.penstock.kernel.error;

import dev.penstock.kernel.node.PlanNode;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SupportsNonDeterministicExpression;
import scala.collection.immutable.Seq;

/**
 * A filter and a projection in which a failing row does not fail the query; see {@link AttemptExec}. It is opaque to the optimizer: expressions that can fail are
 * moved neither out of it nor into it.
 */
public final class AttemptPlan extends PlanNode implements SupportsNonDeterministicExpression {
  private final Attempt attempt;
  private final Expression condition;
  private final Seq<Expression> columns;

  /** @param columns without their names, because Spark drops names in nodes that it does not know */
  public AttemptPlan(
      Attempt attempt, Expression condition, Seq<Expression> columns, Seq<Attribute> output, LogicalPlan child) {
    super(output, child);
    this.attempt = attempt;
    this.condition = condition;
    this.columns = columns;
  }

  Attempt attempt() {
    return attempt;
  }

  Expression condition() {
    return condition;
  }

  Seq<Expression> columns() {
    return columns;
  }

  /** All columns of the child, because the report of a failed row shows them. */
  @Override
  public AttributeSet references() {
    return child().outputSet();
  }

  @Override
  public boolean allowNonDeterministicExpression() {
    return true;
  }

  @Override
  protected Object[] parts() {
    return new Object[] {attempt, condition, columns};
  }

  @Override
  public LogicalPlan withNewChildInternal(LogicalPlan newChild) {
    return new AttemptPlan(attempt, condition, columns, output(), newChild);
  }
}
