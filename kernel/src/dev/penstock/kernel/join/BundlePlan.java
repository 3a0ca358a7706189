package dev.penstock.kernel.join;

import dev.penstock.kernel.node.Nodes;
import dev.penstock.kernel.node.PlanNode;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import scala.collection.immutable.Seq;

/** Packs a join's input into {@link Bundle}s in each task, before the shuffle. */
public final class BundlePlan extends PlanNode {
  public BundlePlan(Seq<Attribute> output, LogicalPlan child) {
    super(output, child);
  }

  static Dataset<Row> of(Dataset<Row> input) {
    SparkSession session = (SparkSession) input.sparkSession();
    ExperimentalMethods methods = session.experimental();
    synchronized (methods) {
      if (!methods.extraStrategies().exists(s -> s instanceof Planning)) {
        methods.extraStrategies_$eq((Seq<SparkStrategy>) methods.extraStrategies().appended(new Planning()));
      }
    }
    return Dataset$.MODULE$.ofRows(session, new BundlePlan(Nodes.columns(Bundle.SCHEMA), Nodes.plan(input)));
  }

  /** All columns of the child, so that none is pruned. */
  @Override
  public AttributeSet references() {
    return child().outputSet();
  }

  @Override
  protected Object[] parts() {
    return new Object[] {};
  }

  @Override
  public LogicalPlan withNewChildInternal(LogicalPlan newChild) {
    return new BundlePlan(output(), newChild);
  }

  /** Plans the node. */
  private static final class Planning extends SparkStrategy {
    @Override
    public Seq<SparkPlan> apply(LogicalPlan plan) {
      return Nodes.list(
          plan instanceof BundlePlan bundles
              ? List.of(new BundleExec(bundles.output(), planLater(bundles.child())))
              : List.of());
    }
  }
}
