package dev.penstock.kernel.error;

import dev.penstock.kernel.node.Nodes;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import scala.jdk.javaapi.CollectionConverters;

/** An {@link AttemptPlan} as a function of a row. For one thread. */
public final class RowAttempt implements Serializable {
  private static final long serialVersionUID = 1L;

  private final Attempt attempt;
  private final Expression wanted;
  private final ArrayList<Expression> columns;
  /** Computes the row that is attempted, and reported if it fails, from the input row; null: they are the same. */
  private final ArrayList<NamedExpression> before;
  /** The output columns, over the inputs of {@code columns}; they include each of {@code columns} that can fail. */
  private final ArrayList<Expression> after;
  private transient BasePredicate condition;
  private transient UnsafeProjection projection;
  private transient UnsafeProjection shown;
  private transient Failures failures;

  RowAttempt(Attempt attempt, Expression wanted, List<Expression> columns) {
    this(attempt, wanted, columns, null, columns);
  }

  private RowAttempt(
      Attempt attempt, Expression wanted, List<Expression> columns, List<NamedExpression> before, List<Expression> after) {
    this.attempt = attempt;
    this.wanted = wanted;
    this.columns = new ArrayList<>(columns);
    this.before = before == null ? null : new ArrayList<>(before);
    this.after = new ArrayList<>(after);
  }

  /** The same attempt, over rows from which these columns compute its input. They must cost nothing and not fail. */
  public RowAttempt over(List<NamedExpression> below) {
    return new RowAttempt(attempt, wanted, columns, below, after);
  }

  /**
   * The same attempt, followed by a projection that refers to its columns by these attributes; null if an expression would be evaluated more often or not at all, and so fail
   * for other rows.
   */
  public RowAttempt then(List<? extends Expression> above, List<Attribute> attributes) {
    Map<ExprId, Expression> made = new HashMap<>();
    Set<ExprId> passed = new HashSet<>();
    for (int i = 0; i < after.size(); i++) {
      made.put(attributes.get(i).exprId(), after.get(i));
      if (Nodes.isFree(after.get(i))) {
        passed.add(attributes.get(i).exprId());
      }
    }
    Set<ExprId> once = new HashSet<>();
    for (Expression column : above) {
      Expression value = column instanceof Alias alias ? alias.child() : column;
      if (value instanceof Attribute attribute) {
        if (!passed.contains(attribute.exprId()) && !once.add(attribute.exprId())) {
          return null;
        }
      } else if (!value.deterministic()
          || value.exists(e -> e instanceof Attribute read && !passed.contains(read.exprId()))) {
        return null;
      }
    }
    if (passed.size() + once.size() < made.size() || after.stream().anyMatch(e -> !e.deterministic())) {
      return null;
    }
    return new RowAttempt(attempt, wanted, columns, before, above.stream().map(e -> Nodes.replaced(e, made)).toList());
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
    List<Attribute> tried = input;
    Map<ExprId, Expression> made = new HashMap<>();
    if (before != null) {
      tried = before.stream().map(NamedExpression::toAttribute).toList();
      before.forEach(e -> made.put(e.exprId(), (Expression) e));
      shown = UnsafeProjection.create(Nodes.<Expression>list(bound(before, input)));
      shown.initialize(partition);
    }
    condition = Predicate$.MODULE$.create(Nodes.bound(Nodes.replaced(wanted, made), input));
    condition.initialize(partition);
    List<Expression> chosen = after.stream().map(e -> Nodes.replaced(e, made)).toList();
    projection = UnsafeProjection.create(Nodes.<Expression>list(bound(chosen, input)));
    projection.initialize(partition);
    failures = new Failures(attempt, Nodes.bound(wanted, tried), bound(columns, tried), tried);
  }

  private static List<Expression> bound(List<?> expressions, List<Attribute> input) {
    return expressions.stream().map(e -> Nodes.bound((Expression) e, input)).toList();
  }

  /** The output row, which the next call overwrites; null if the row is filtered out, or has failed and been reported. */
  public InternalRow apply(InternalRow row) {
    try {
      return condition.eval(row) ? projection.apply(row) : null;
    } catch (Exception e) {
      failures.report(e, before == null ? row : shown.apply(row));
      return null;
    }
  }

  /** Applies the attempt to rows; each result is valid until the next one is fetched. */
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
