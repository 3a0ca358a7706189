package dev.penstock.kernel.error;

import dev.penstock.kernel.node.Nodes;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import scala.jdk.javaapi.CollectionConverters;

/** An {@link AttemptPlan} of one query as a function of a row. For one thread. */
public final class RowAttempt implements Serializable {
  private static final long serialVersionUID = 1L;

  private final Attempts.Layout layout;
  private final ArrayList<Expression> conditions;
  private final ArrayList<Expression> columns;
  private transient BasePredicate condition;
  private transient UnsafeProjection projection;
  private transient Failures failures;

  private RowAttempt(AttemptPlan plan) {
    layout = plan.layout();
    conditions = new ArrayList<>(CollectionConverters.asJava(plan.conditions()));
    columns = new ArrayList<>(CollectionConverters.asJava(plan.columns()));
  }

  public static RowAttempt of(AttemptPlan plan) {
    return new RowAttempt(plan);
  }

  public List<Expression> expressions() {
    List<Expression> all = new ArrayList<>(conditions);
    all.addAll(columns);
    return all;
  }

  /** Compiles the attempt for rows of these columns. */
  public void bind(List<Attribute> input) {
    List<Expression> wanted = bound(conditions, input);
    List<Expression> chosen = bound(columns, input);
    condition = Predicate$.MODULE$.create(wanted.get(0));
    condition.initialize(0);
    projection = UnsafeProjection.create(Nodes.<Expression>list(chosen));
    projection.initialize(0);
    failures = new Failures(layout, wanted, chosen, input);
  }

  private static List<Expression> bound(List<Expression> some, List<Attribute> input) {
    return some.stream().map(e -> AttemptExec.bound(e, input)).toList();
  }

  /** The columns, which the next call overwrites; null if the row is not wanted, or has failed and is reported. */
  public InternalRow apply(InternalRow row) {
    try {
      return condition.eval(row) ? projection.apply(row) : null;
    } catch (Exception e) {
      failures.report(0, e, row);
      return null;
    }
  }
}
