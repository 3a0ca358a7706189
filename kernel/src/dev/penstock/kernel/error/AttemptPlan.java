package dev.penstock.kernel.error;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.AttributeSet$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SupportsNonDeterministicExpression;
import org.apache.spark.sql.catalyst.plans.logical.UnaryNode;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A filter and a projection that no row can fail; see {@link AttemptExec}. The optimizer knows nothing of it: expressions that can fail do not
 * leave it, and none come in.
 */
public final class AttemptPlan extends LogicalPlan implements UnaryNode, SupportsNonDeterministicExpression {
  private final Attempts.Layout layout;
  private final Seq<Expression> conditions;
  private final Seq<Expression> columns;
  private final Seq<Attribute> output;
  private final LogicalPlan child;

  /**
   * @param conditions one of each attempt
   * @param columns those of all attempts, one after the other, without their names: Spark drops names in nodes that it does not know
   * @param output a flag for each attempt, unless the only attempt decides whether there is a row at all; then the columns
   */
  public AttemptPlan(
      Attempts.Layout layout, Seq<Expression> conditions, Seq<Expression> columns, Seq<Attribute> output,
      LogicalPlan child) {
    this.layout = layout;
    this.conditions = conditions;
    this.columns = columns;
    this.output = output;
    this.child = child;
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

  /** Those columns that are not the child's own. */
  static AttributeSet produced(Seq<Attribute> output, AttributeSet child) {
    List<Expression> own = new ArrayList<>(CollectionConverters.asJava(output));
    own.removeIf(a -> child.contains((Attribute) a));
    return AttributeSet$.MODULE$.apply(CollectionConverters.asScala(own));
  }

  @Override
  public Seq<Attribute> output() {
    return output;
  }

  @Override
  public AttributeSet producedAttributes() {
    return produced(output, child.outputSet());
  }

  /** All columns of the child: the report of a row that failed shows them. */
  @Override
  public AttributeSet references() {
    return child.outputSet();
  }

  @Override
  public boolean allowNonDeterministicExpression() {
    return true;
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
    return new AttemptPlan(layout, conditions, columns, output, newChild);
  }

  @Override
  public int productArity() {
    return 5;
  }

  @Override
  public Object productElement(int n) {
    return switch (n) {
      case 0 -> layout;
      case 1 -> conditions;
      case 2 -> columns;
      case 3 -> output;
      default -> child;
    };
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof AttemptPlan;
  }
}
