package dev.penstock.kernel.error;

import dev.penstock.kernel.node.Nodes;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkStrategy;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Filters and projections whose expressions may fail for a row. If none can ({@link Fallible}), the plan is Spark's own; otherwise a
 * failing row is dropped and reported to the job's {@link ErrorChannel}.
 */
public final class Attempts {
  private Attempts() {}

  /** Whether rows can fail in the outermost node of a frame. */
  public static boolean guards(Dataset<Row> frame) {
    return plan(frame) instanceof AttemptPlan;
  }

  /** Selects columns of a frame. The spec is that of an {@link Attempt}. */
  public static Dataset<Row> select(Dataset<Row> in, List<Column> columns, String spec) {
    Dataset<Row> plain = in.select(columns.toArray(new Column[0]));
    if (!(plan(plain) instanceof Project project) || project.child() != plan(in)) {
      return plain;
    }
    List<NamedExpression> chosen = CollectionConverters.asJava(project.projectList());
    if (chosen.stream().noneMatch(e -> Fallible.test((Expression) e))) {
      return plain;
    }
    return made(in, Attempt.of(spec), Literal.TrueLiteral(), chosen);
  }

  /** The rows of a frame that match a condition. The spec is that of an {@link Attempt}. */
  public static Dataset<Row> filter(Dataset<Row> in, Column condition, String spec) {
    Dataset<Row> plain = in.where(condition);
    if (!(plan(plain) instanceof Filter filter) || filter.child() != plan(in) || !Fallible.test(filter.condition())) {
      return plain;
    }
    List<NamedExpression> all = new ArrayList<>(CollectionConverters.asJava(plan(in).output()));
    return made(in, Attempt.of(spec), filter.condition(), all);
  }

  /** Whether a condition or a column can fail. */
  public static boolean fallible(Dataset<Row> in, List<Column> columns) {
    LogicalPlan plain = plan(in.select(columns.toArray(new Column[0])));
    return !(plain instanceof Project project)
        || CollectionConverters.asJava(project.projectList()).stream().anyMatch(e -> Fallible.test((Expression) e));
  }

  private static Dataset<Row> made(
      Dataset<Row> in, Attempt attempt, Expression condition, List<NamedExpression> columns) {
    SparkSession session = (SparkSession) in.sparkSession();
    plan(session);
    List<Expression> all = new ArrayList<>();
    List<Attribute> output = new ArrayList<>();
    for (NamedExpression column : columns) {
      all.add(Fallible.inlined(column instanceof Alias alias ? alias.child() : (Expression) column));
      output.add(column.toAttribute());
    }
    return Dataset$.MODULE$.ofRows(session, new AttemptPlan(
        attempt, Fallible.inlined(condition), Nodes.list(all), Nodes.list(output), plan(in)));
  }

  private static void plan(SparkSession session) {
    ExperimentalMethods methods = session.experimental();
    synchronized (methods) {
      if (!methods.extraStrategies().exists(s -> s instanceof Planning)) {
        methods.extraStrategies_$eq((Seq<SparkStrategy>) methods.extraStrategies().appended(new Planning()));
      }
    }
  }

  /** Plans the node. */
  private static final class Planning extends SparkStrategy {
    @Override
    public Seq<org.apache.spark.sql.execution.SparkPlan> apply(LogicalPlan plan) {
      if (plan instanceof AttemptPlan attempt) {
        return Nodes.list(List.of(new AttemptExec(
            attempt.attempt(), attempt.condition(), attempt.columns(), attempt.output(), planLater(attempt.child()))));
      }
      return Nodes.list(List.of());
    }
  }

  private static LogicalPlan plan(Dataset<Row> frame) {
    return ((org.apache.spark.sql.classic.Dataset<Row>) frame).logicalPlan();
  }
}
