package dev.penstock.kernel.hosted;

import dev.penstock.kernel.node.Nodes;
import dev.penstock.kernel.error.RowAttempt;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Predicate;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;

/**
 * Filters and projections of a query, one after the other, as a function of a row. Spark has resolved and optimised the expressions on the
 * driver; they are compiled where they run. For one thread.
 */
final class Steps implements Serializable {
  private static final long serialVersionUID = 1L;

  private sealed interface Step extends Serializable permits Where, Select, Attempted {
    void bind(List<Attribute> input);

    /** What becomes of a row, until the next call; null: nothing. */
    InternalRow apply(InternalRow row);
  }

  private static final class Where implements Step {
    private static final long serialVersionUID = 1L;
    private final Expression condition;
    private transient BasePredicate compiled;

    Where(Expression condition) {
      this.condition = condition;
    }

    @Override
    public void bind(List<Attribute> input) {
      compiled = Predicate.create(condition, Nodes.list(input));
      compiled.initialize(0);
    }

    @Override
    public InternalRow apply(InternalRow row) {
      return compiled.eval(row) ? row : null;
    }
  }

  private static final class Select implements Step {
    private static final long serialVersionUID = 1L;
    private final ArrayList<Expression> columns;
    private transient UnsafeProjection compiled;

    Select(List<? extends Expression> columns) {
      this.columns = new ArrayList<>(columns);
    }

    @Override
    public void bind(List<Attribute> input) {
      compiled = UnsafeProjection.create(Nodes.list(columns), Nodes.list(input));
      compiled.initialize(0);
    }

    @Override
    public InternalRow apply(InternalRow row) {
      return compiled.apply(row);
    }
  }

  private static final class Attempted implements Step {
    private static final long serialVersionUID = 1L;
    private final RowAttempt attempt;

    Attempted(RowAttempt attempt) {
      this.attempt = attempt;
    }

    @Override
    public void bind(List<Attribute> input) {
      attempt.bind(input);
    }

    @Override
    public InternalRow apply(InternalRow row) {
      return attempt.apply(row);
    }
  }

  private final ArrayList<Step> steps = new ArrayList<>();
  /** The columns that each step reads; those of the first are by name. */
  private final ArrayList<ArrayList<Attribute>> inputs = new ArrayList<>();

  /** The same steps, to which others can be added. */
  Steps copy() {
    return (Steps) Copies.of(Copies.bytes(this));
  }

  private void add(Step step, List<Attribute> input) {
    steps.add(step);
    inputs.add(new ArrayList<>(input));
  }

  void where(Expression condition, List<Attribute> input) {
    add(new Where(condition), input);
  }

  void select(List<? extends Expression> columns, List<Attribute> input) {
    add(new Select(columns), input);
  }

  void attempt(RowAttempt attempt, List<Attribute> input) {
    add(new Attempted(attempt), input);
  }

  /** Whether what comes out is a row of its own, and not one of the input's. */
  boolean makesRows() {
    return !steps.isEmpty() && !(steps.get(steps.size() - 1) instanceof Where);
  }

  /** Compiles all steps. The first filters pass rows on as they are, so they read the input's columns as well. */
  void bind(List<String> columns) {
    boolean passed = true;
    for (int i = 0; i < steps.size(); i++) {
      steps.get(i).bind(passed ? named(inputs.get(i), columns) : inputs.get(i));
      passed &= steps.get(i) instanceof Where;
    }
  }

  void bind() {
    for (int i = 0; i < steps.size(); i++) {
      steps.get(i).bind(inputs.get(i));
    }
  }

  /** The attributes in the places in which their columns stand; a column that nobody reads has any other attribute. */
  private static List<Attribute> named(List<Attribute> attributes, List<String> columns) {
    List<Attribute> out = new ArrayList<>();
    for (String column : columns) {
      Attribute found = null;
      for (Attribute a : attributes) {
        found = a.name().equals(column) ? a : found;
      }
      out.add(found == null ? attributes.get(0).newInstance() : found);
    }
    return out;
  }

  InternalRow apply(InternalRow row) {
    InternalRow now = row;
    for (int i = 0; now != null && i < steps.size(); i++) {
      now = steps.get(i).apply(now);
    }
    return now;
  }
}
