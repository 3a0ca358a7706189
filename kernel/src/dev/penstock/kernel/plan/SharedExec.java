package dev.penstock.kernel.plan;

import dev.penstock.kernel.node.ExecLeaf;
import dev.penstock.kernel.node.ExecNode;
import dev.penstock.kernel.node.Nodes;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.RepartitionByExpression$;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DatetimeType;
import org.apache.spark.sql.types.NumericType;
import org.apache.spark.sql.types.StringType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** The physical nodes of a {@link SharedPart}. */
public final class SharedExec {
  /** The property with the batch id of a query's threads. */
  private static final String EPOCH = "streaming.sql.batchId";

  private SharedExec() {}

  /** Plans the nodes. */
  static final class Planning extends SparkStrategy {
    @Override
    public Seq<SparkPlan> apply(LogicalPlan plan) {
      if (plan instanceof SharedPlan.First first) {
        return Nodes.list(List.of(new First(first.part(), first.output(), planLater(shuffled(first)))));
      }
      if (plan instanceof SharedPlan.Again again) {
        return Nodes.list(List.of(new Again(again.part(), again.output())));
      }
      return Nodes.list(List.of());
    }

    /**
     * The part under a shuffle, so that several places can read it. Equal rows go to the same partition, where rows that cancel out
     * can be consolidated.
     */
    private static LogicalPlan shuffled(SharedPlan.First first) {
      List<NamedExpression> columns = new ArrayList<>();
      List<Expression> keys = new ArrayList<>();
      for (Attribute column : CollectionConverters.asJava(first.output())) {
        columns.add(column);
        if (!column.name().startsWith("__") && hashes(column.dataType())) {
          keys.add(column);
        }
      }
      LogicalPlan all = new Project(Nodes.list(columns), first.child());
      return RepartitionByExpression$.MODULE$.apply(Nodes.list(keys), all, first.conf().numShufflePartitions());
    }

    private static boolean hashes(DataType type) {
      return type instanceof NumericType || type instanceof StringType || type instanceof BooleanType
          || type instanceof DatetimeType || type instanceof BinaryType;
    }
  }

  /** Computes the part. */
  public static final class First extends ExecNode {
    private static final long serialVersionUID = 1L;
    private final transient SharedPart part;

    public First(SharedPart part, Seq<Attribute> output, SparkPlan child) {
      super(output, child);
      this.part = part;
    }

    @Override
    public RDD<InternalRow> doExecute() {
      return child().execute();
    }

    @Override
    public void doPrepare() {
      part.offer(this, sparkContext().getLocalProperty(EPOCH));
    }

    @Override
    public SparkPlan withNewChildInternal(SparkPlan newChild) {
      return new First(part, newChild.output(), newChild);
    }

    @Override
    protected Object[] parts() {
      return new Object[] {part};
    }
  }

  /** Reads the output of {@link First}. */
  public static final class Again extends ExecLeaf {
    private static final long serialVersionUID = 1L;
    private final transient SharedPart part;

    public Again(SharedPart part, Seq<Attribute> columns) {
      super(columns);
      this.part = part;
    }

    @Override
    public RDD<InternalRow> doExecute() {
      return part.rows(output(), sparkContext().getLocalProperty(EPOCH));
    }

    @Override
    protected Object[] parts() {
      return new Object[] {part};
    }
  }
}
