package dev.penstock.kernel.plan;

import dev.penstock.kernel.node.ExecLeaf;
import dev.penstock.kernel.node.ExecNode;
import dev.penstock.kernel.node.Nodes;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.MapPartitionsExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec;
import scala.Function1;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;

/**
 * Keeps the plan below an operator in the driver. The function that Spark sends to the tasks of a stateful or partition-mapping operator
 * references the operator and so the whole plan below it. For each operator of the query, Spark serialises that plan to check it, serialises it again to send it, and
 * deserialises it in every task. A task only needs the columns, so this node sends only those.
 */
public final class PlanCut extends ExecNode {
  private static final long serialVersionUID = 1L;

  public PlanCut(Seq<Attribute> output, SparkPlan child) {
    super(output, child);
  }

  @Override
  protected Object[] parts() {
    return new Object[0];
  }

  @Override
  public RDD<InternalRow> doExecute() {
    return child().execute();
  }

  /** Cuts every plan of a session; set in {@code spark.sql.extensions}. */
  public static final class Extension implements Function1<SparkSessionExtensions, BoxedUnit> {
    @Override
    public BoxedUnit apply(SparkSessionExtensions extensions) {
      extensions.injectColumnar(session -> new Cutting());
      return BoxedUnit.UNIT;
    }
  }

  /** Runs after the operators' state, shuffles and sorts are planned, and before code generation. */
  private static final class Cutting extends ColumnarRule {
    @Override
    public Rule<SparkPlan> preColumnarTransitions() {
      return new Rule<>() {
        @Override
        public SparkPlan apply(SparkPlan plan) {
          return cut(plan);
        }
      };
    }
  }

  private static SparkPlan cut(SparkPlan plan) {
    List<SparkPlan> children = new ArrayList<>();
    boolean changed = false;
    boolean sent = plan instanceof TransformWithStateExec || plan instanceof MapPartitionsExec;
    for (SparkPlan child : CollectionConverters.asJava(plan.children())) {
      SparkPlan below = cut(child);
      children.add(sent && !(below instanceof PlanCut) ? new PlanCut(below.output(), below) : below);
      changed |= children.get(children.size() - 1) != child;
    }
    return changed ? plan.withNewChildren(Nodes.list(children)) : plan;
  }

  /** The replacement that is sent to tasks. */
  private Object writeReplace() {
    return new Below(output());
  }

  @Override
  public SparkPlan withNewChildInternal(SparkPlan newChild) {
    return new PlanCut(newChild.output(), newChild);
  }

  @Override
  public Partitioning outputPartitioning() {
    return child().outputPartitioning();
  }

  @Override
  public Seq<SortOrder> outputOrdering() {
    return child().outputOrdering();
  }

  /** The columns of a plan that stays in the driver. */
  private static final class Below extends ExecLeaf {
    private static final long serialVersionUID = 1L;

    Below(Seq<Attribute> columns) {
      super(columns);
    }

    @Override
    public RDD<InternalRow> doExecute() {
      throw new IllegalStateException("a plan must be executed by the driver");
    }

    @Override
    protected Object[] parts() {
      return new Object[0];
    }
  }
}
