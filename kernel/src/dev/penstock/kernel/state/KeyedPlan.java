package dev.penstock.kernel.state;

import dev.penstock.kernel.node.Nodes;
import dev.penstock.kernel.node.PlanNode;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** A {@link Keyed} in the plan of a query that shares a job. It is never executed: the job decomposes the plan. */
public final class KeyedPlan extends PlanNode {
  private final Keyed keyed;
  private final int number;
  private final Seq<Expression> inputs;

  /**
   * @param number the operator's number in the query
   * @param inputs all columns of the child, so that none is pruned
   */
  public KeyedPlan(Keyed keyed, int number, Seq<Expression> inputs, Seq<Attribute> output, LogicalPlan child) {
    super(output, child);
    this.keyed = keyed;
    this.number = number;
    this.inputs = inputs;
  }

  static Dataset<Row> of(Dataset<Row> in, Keyed keyed, int number) {
    LogicalPlan child = Nodes.plan(in);
    return Dataset$.MODULE$.ofRows(
        (SparkSession) in.sparkSession(),
        new KeyedPlan(
            keyed, number, Nodes.list(CollectionConverters.asJava(child.output())), Nodes.columns(keyed.output()), child));
  }

  public Keyed keyed() {
    return keyed;
  }

  public int number() {
    return number;
  }

  @Override
  protected Object[] parts() {
    return new Object[] {keyed, number, inputs};
  }

  @Override
  public LogicalPlan withNewChildInternal(LogicalPlan newChild) {
    return new KeyedPlan(keyed, number, inputs, output(), newChild);
  }
}
