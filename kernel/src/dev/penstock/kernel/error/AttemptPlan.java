package dev.penstock.kernel.error;

import dev.penstock.kernel.node.PlanNode;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SupportsNonDeterministicExpression;
import scala.collection.immutable.Seq;

/**
 * A filter and a projection that no row can fail; see {@link AttemptExec}. It is opaque to the optimizer: expressions that can fail are neither
 * moved out of it nor into it.
 */
public final class AttemptPlan extends PlanNode implements SupportsNonDeterministicExpression {
  private final Attempts.Layout layout;
  private final Seq<Expression> conditions;
  private final Seq<Expression> columns;

  /**
   * @param conditions one of each attempt
   * @param columns those of all attempts, one after the other, without their names: Spark drops names in nodes that it does not know
   * @param output a flag for each attempt, unless the only attempt decides whether there is a row at all; then the columns
   */
  public AttemptPlan(
      Attempts.Layout layout, Seq<Expression> conditions, Seq<Expression> columns, Seq<Attribute> output,
      LogicalPlan child) {
    super(output, child);
    this.layout = layout;
    this.conditions = conditions;
    this.columns = columns;
  }

  Attempts.Layout layout() {
    return layout;
  }

  Seq<Expression> conditions() {
    return conditions;
  }

  Seq<Expression> columns() {
    return columns;
  }

  /** All columns of the child: the report of a row that failed shows them. */
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
    return new Object[] {layout, conditions, columns};
  }

  @Override
  public LogicalPlan withNewChildInternal(LogicalPlan newChild) {
    return new AttemptPlan(layout, conditions, columns, output(), newChild);
  }
}
