package dev.penstock.kernel.plan;

import dev.penstock.kernel.node.PlanNode;
import org.apache.spark.sql.catalyst.analysis.MultiInstanceRelation;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.plans.logical.LeafNode;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** The logical nodes of a {@link SharedPart}. */
public final class SharedPlan {

  private SharedPlan() {}

  /**
   * The place that computes the part. It references all columns of its child, so columns that only another place reads are not pruned. It is
   * otherwise opaque to the optimizer, which pushes no filter through it.
   */
  public static final class First extends PlanNode {
    private final SharedPart part;

    public First(SharedPart part, Seq<Attribute> columns, LogicalPlan child) {
      super(columns, child);
      this.part = part;
    }

    public SharedPart part() {
      return part;
    }

    @Override
    protected Object[] parts() {
      return new Object[] {part};
    }

    @Override
    public LogicalPlan withNewChildInternal(LogicalPlan newChild) {
      return new First(part, output(), newChild);
    }
  }

  /** A place that reads the part again. */
  public static final class Again extends LogicalPlan implements LeafNode, MultiInstanceRelation {
    private final SharedPart part;
    private final Seq<Attribute> columns;

    public Again(SharedPart part, Seq<Attribute> columns) {
      this.part = part;
      this.columns = columns;
    }

    public SharedPart part() {
      return part;
    }

    @Override
    public LogicalPlan newInstance() {
      java.util.List<Attribute> made = new java.util.ArrayList<>();
      CollectionConverters.asJava(columns).forEach(c -> made.add(c.newInstance()));
      return new Again(part, CollectionConverters.asScala(made).toSeq());
    }

    @Override
    public boolean isStreaming() {
      return true;
    }

    @Override
    public Statistics computeStats() {
      return new Statistics(
          scala.math.BigInt.apply(conf().defaultSizeInBytes()), scala.Option.empty(),
          org.apache.spark.sql.catalyst.expressions.AttributeMap$.MODULE$.empty(), false);
    }

    @Override
    public AttributeSet producedAttributes() {
      return outputSet();
    }

    @Override
    @SuppressWarnings("unchecked")
    public Seq<LogicalPlan> children() {
      return (Seq<LogicalPlan>) (Seq<?>) Nil$.MODULE$;
    }

    @Override
    public LogicalPlan withNewChildrenInternal(IndexedSeq<LogicalPlan> children) {
      return this;
    }

    @Override
    public Seq<Attribute> output() {
      return columns;
    }

    @Override
    public int productArity() {
      return 2;
    }

    @Override
    public Object productElement(int n) {
      return n == 0 ? part : columns;
    }

    @Override
    public boolean canEqual(Object other) {
      return other instanceof Again;
    }
  }
}
