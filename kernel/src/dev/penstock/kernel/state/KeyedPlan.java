package dev.penstock.kernel.state;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.AttributeSet$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.UnaryNode;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.StructField;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** A {@link Keyed} in the plan of a query that shares a job. It is never run: the job takes the plan apart. */
public final class KeyedPlan extends LogicalPlan implements UnaryNode {
  private final Keyed keyed;
  private final Seq<Expression> inputs;
  private final Seq<Attribute> output;
  private final LogicalPlan child;

  /** @param inputs all columns of the child, so that none is pruned */
  public KeyedPlan(Keyed keyed, Seq<Expression> inputs, Seq<Attribute> output, LogicalPlan child) {
    this.keyed = keyed;
    this.inputs = inputs;
    this.output = output;
    this.child = child;
  }

  static Dataset<Row> of(Dataset<Row> in, Keyed keyed) {
    LogicalPlan child = ((org.apache.spark.sql.classic.Dataset<Row>) in).logicalPlan();
    List<Attribute> output = new ArrayList<>();
    for (StructField field : keyed.output().fields()) {
      output.add(DataTypeUtils.toAttribute(field));
    }
    return Dataset$.MODULE$.ofRows(
        (SparkSession) in.sparkSession(),
        new KeyedPlan(keyed, list(CollectionConverters.asJava(child.output())), list(output), child));
  }

  private static <T> Seq<T> list(List<? extends T> values) {
    return CollectionConverters.asScala(new ArrayList<T>(values)).toSeq();
  }

  public Keyed keyed() {
    return keyed;
  }

  @Override
  public Seq<Attribute> output() {
    return output;
  }

  @Override
  public AttributeSet producedAttributes() {
    return AttributeSet$.MODULE$.apply(CollectionConverters.asScala(new ArrayList<Expression>(CollectionConverters.asJava(output))));
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
    return new KeyedPlan(keyed, inputs, output, newChild);
  }

  @Override
  public int productArity() {
    return 4;
  }

  @Override
  public Object productElement(int n) {
    return switch (n) {
      case 0 -> keyed;
      case 1 -> inputs;
      case 2 -> output;
      default -> child;
    };
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof KeyedPlan;
  }
}
