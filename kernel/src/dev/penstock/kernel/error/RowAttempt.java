package dev.penstock.kernel.error;

import dev.penstock.kernel.node.Nodes;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import scala.jdk.javaapi.CollectionConverters;

/** An {@link AttemptPlan} as a function of a row. For one thread. */
public final class RowAttempt implements Serializable {
  private static final long serialVersionUID = 1L;

  private final Attempt attempt;
  private final Expression wanted;
  private final ArrayList<Expression> columns;
  private transient BasePredicate condition;
  private transient UnsafeProjection projection;
  private transient Failures failures;

  RowAttempt(Attempt attempt, Expression wanted, List<Expression> columns) {
    this.attempt = attempt;
    this.wanted = wanted;
    this.columns = new ArrayList<>(columns);
  }

  public static RowAttempt of(AttemptPlan plan) {
    return new RowAttempt(plan.attempt(), plan.condition(), CollectionConverters.asJava(plan.columns()));
  }

  public List<Expression> expressions() {
    List<Expression> all = new ArrayList<>(columns);
    all.add(wanted);
    return all;
  }

  /** Compiles the attempt for rows of these columns. */
  public void bind(List<Attribute> input) {
    bind(input, 0);
  }

  void bind(List<Attribute> input, int partition) {
    Expression first = Nodes.bound(wanted, input);
    List<Expression> chosen = columns.stream().map(e -> Nodes.bound(e, input)).toList();
    condition = Predicate$.MODULE$.create(first);
    condition.initialize(partition);
    projection = UnsafeProjection.create(Nodes.<Expression>list(chosen));
    projection.initialize(partition);
    failures = new Failures(attempt, first, chosen, input);
  }

  /** The columns, which the next call overwrites; null if the row is not wanted, or has failed and is reported. */
  public InternalRow apply(InternalRow row) {
    try {
      return condition.eval(row) ? projection.apply(row) : null;
    } catch (Exception e) {
      failures.report(e, row);
      return null;
    }
  }

  /** What becomes of rows, each until the next one is asked for. */
  Iterator<InternalRow> over(Iterator<InternalRow> rows) {
    return new Iterator<>() {
      private InternalRow next;

      @Override
      public boolean hasNext() {
        while (next == null && rows.hasNext()) {
          next = apply(rows.next());
        }
        return next != null;
      }

      @Override
      public InternalRow next() {
        if (!hasNext()) {
          throw new NoSuchElementException();
        }
        InternalRow row = next;
        next = null;
        return row;
      }
    };
  }
}
