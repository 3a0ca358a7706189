package dev.penstock.kernel.error;

import dev.penstock.kernel.node.Nodes;
import java.io.Serializable;
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
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Filters and projections whose expressions may fail for a row. If none of them can ({@link Fallible}), the frame is the plain one; otherwise a
 * failing row is dropped and reported to the job's {@link ErrorChannel}.
 */
public final class Attempts {
  private Attempts() {}

  /** What belongs to which attempt, in a list of the columns of all. */
  static final class Layout implements Serializable {
    private static final long serialVersionUID = 1L;
    final ArrayList<Attempt> attempts;
    final int[] widths;

    Layout(List<Attempt> attempts, int[] widths) {
      this.attempts = new ArrayList<>(attempts);
      this.widths = widths;
    }

    @Override
    public String toString() {
      return "attempts";
    }
  }

  /** Whether rows can fail in the outermost node of a frame. */
  public static boolean guards(Dataset<Row> frame) {
    return plan(frame) instanceof AttemptPlan;
  }

  /** Chosen columns of a frame. The spec is a list with one {@link Attempt}. */
  public static Dataset<Row> select(Dataset<Row> in, List<Column> columns, String spec) {
    Dataset<Row> plain = in.select(columns.toArray(new Column[0]));
    if (!(plan(plain) instanceof Project project) || project.child() != plan(in)) {
      return plain;
    }
    List<NamedExpression> chosen = CollectionConverters.asJava(project.projectList());
    if (chosen.stream().noneMatch(e -> Fallible.test((Expression) e))) {
      return plain;
    }
    return made(in, Attempt.list(spec), List.of(Literal.TrueLiteral()), List.of(chosen), List.of());
  }

  /** The rows of a frame that match a condition. The spec is a list with one {@link Attempt}. */
  public static Dataset<Row> filter(Dataset<Row> in, Column condition, String spec) {
    Dataset<Row> plain = in.where(condition);
    if (!(plan(plain) instanceof Filter filter) || filter.child() != plan(in) || !Fallible.test(filter.condition())) {
      return plain;
    }
    List<NamedExpression> all = new ArrayList<>(CollectionConverters.asJava(plan(in).output()));
    return made(in, Attempt.list(spec), List.of(filter.condition()), List.of(all), List.of());
  }

  /**
   * Several queries over each row: a flag for each query that says whether it selects the row, named by {@code flags}, and the columns of
   * all. A column is NULL if its query does not select the row or fails on it. The spec is a list with one {@link Attempt} for each.
   */
  public static Dataset<Row> wide(
      Dataset<Row> in, List<Column> conditions, List<List<Column>> columns, List<String> flags, String spec) {
    List<Expression> wanted = new ArrayList<>();
    List<List<NamedExpression>> chosen = new ArrayList<>();
    for (int i = 0; i < conditions.size(); i++) {
      wanted.add(condition(in, conditions.get(i)));
      LogicalPlan plain = plan(in.select(columns.get(i).toArray(new Column[0])));
      chosen.add(CollectionConverters.asJava(((Project) plain).projectList()));
    }
    List<Attribute> kept = new ArrayList<>();
    for (String flag : flags) {
      StructField field = new StructField(flag, DataTypes.BooleanType, false, Metadata.empty());
      kept.add(DataTypeUtils.toAttribute(field));
    }
    return made(in, Attempt.list(spec), wanted, chosen, kept);
  }

  /** Whether a condition or a column can fail. */
  public static boolean fallible(Dataset<Row> in, List<Column> columns) {
    LogicalPlan plain = plan(in.select(columns.toArray(new Column[0])));
    return !(plain instanceof Project project)
        || CollectionConverters.asJava(project.projectList()).stream().anyMatch(e -> Fallible.test((Expression) e));
  }

  /** The condition as Spark has resolved it. */
  private static Expression condition(Dataset<Row> in, Column condition) {
    return ((Filter) plan(in.where(condition))).condition();
  }

  private static Dataset<Row> made(
      Dataset<Row> in, List<Attempt> attempts, List<Expression> conditions, List<List<NamedExpression>> columns,
      List<Attribute> flags) {
    SparkSession session = (SparkSession) in.sparkSession();
    plan(session);
    List<Expression> all = new ArrayList<>();
    List<Attribute> output = new ArrayList<>(flags);
    for (List<NamedExpression> some : columns) {
      for (NamedExpression column : some) {
        all.add(Fallible.inlined(column instanceof Alias alias ? alias.child() : (Expression) column));
        // The columns of a query are NULL in rows that only other queries select.
        output.add(flags.isEmpty() ? column.toAttribute() : column.toAttribute().withNullability(true));
      }
    }
    Layout layout = new Layout(attempts, columns.stream().mapToInt(List::size).toArray());
    return Dataset$.MODULE$.ofRows(session, new AttemptPlan(
        layout, Nodes.list(conditions.stream().map(Fallible::inlined).toList()), Nodes.list(all), Nodes.list(output), plan(in)));
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
            attempt.layout(), attempt.conditions(), attempt.columns(), attempt.output(), planLater(attempt.child()))));
      }
      return Nodes.list(List.of());
    }
  }

  private static LogicalPlan plan(Dataset<Row> frame) {
    return ((org.apache.spark.sql.classic.Dataset<Row>) frame).logicalPlan();
  }
}
