package dev.penstock.kernel.hosted;

import dev.penstock.kernel.node.Nodes;
import dev.penstock.kernel.error.RowAttempt;
import dev.penstock.kernel.row.Unpack;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionsEvaluator;
import org.apache.spark.sql.catalyst.expressions.Generator;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.Predicate;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.optimizer.CollapseProject$;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A sequence of filters, projections and generators as a function of a row, for one thread. Spark has resolved and optimised the expressions on the
 * driver; they are compiled where they run.
 */
final class Steps implements Serializable {
  private static final long serialVersionUID = 1L;

  /** Takes the resulting rows, each only valid during the call. */
  interface Rows {
    void take(InternalRow row) throws IOException;
  }

  private sealed interface Step extends Serializable permits Where, Select, Attempted, Generated {
    void bind(List<Attribute> input);

    /** The resulting row, valid until the next call; null: none. */
    InternalRow apply(InternalRow row);

    /** Starts the rows of a task. */
    default void begin(int task) {}
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

    /** The same columns under these attributes: readers of a union or a shared part refer to columns by position. */
    Select as(List<Attribute> attributes) {
      List<Expression> out = new ArrayList<>();
      for (int i = 0; i < columns.size(); i++) {
        Expression column = columns.get(i);
        Attribute wanted = attributes.get(i);
        if (!((NamedExpression) column).exprId().equals(wanted.exprId())) {
          Expression value = column instanceof Alias alias ? alias.child() : column;
          column = new Alias(value, wanted.name(), wanted.exprId(), Nodes.list(List.of()), Option.empty(), Nodes.list(List.of()));
        }
        out.add(column);
      }
      return new Select(out);
    }

    /** Whether the columns above evaluate each of these at most once, free ones aside. */
    boolean foldsInto(List<? extends Expression> above) {
      Map<ExprId, int[]> uses = new HashMap<>();
      for (Expression column : above) {
        column.foreach(e -> {
          if (e instanceof Attribute attribute) {
            uses.computeIfAbsent(attribute.exprId(), id -> new int[1])[0]++;
          }
          return null;
        });
      }
      for (Expression column : columns) {
        int[] used = uses.get(((NamedExpression) column).exprId());
        boolean once = used == null || used[0] == 1;
        if (!column.deterministic() || !once && !isFree(column)) {
          return false;
        }
      }
      return true;
    }

    /** Unpacking a row is also free: it copies nothing. */
    private static boolean isFree(Expression column) {
      Expression e = column instanceof Alias alias ? alias.child() : column;
      return Nodes.isFree(e instanceof Unpack unpack ? unpack.children().head() : e);
    }

    @Override
    public void begin(int task) {
      compiled.initialize(task);
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

  /** Any number of rows per row, appended to the columns that are needed. */
  private static final class Generated implements Step {
    private static final long serialVersionUID = 1L;
    private final Generator generator;
    private final boolean outer;
    private final ArrayList<Attribute> makes;
    private final ArrayList<Attribute> output;
    private final GenericInternalRow none;
    private transient Generator bound;
    private transient UnsafeProjection chosen;
    private transient JoinedRow joined;

    Generated(Generator generator, boolean outer, List<Attribute> makes, List<Attribute> output) {
      this.generator = generator;
      this.outer = outer;
      this.makes = new ArrayList<>(makes);
      if (outer) {
        this.makes.replaceAll(made -> made.withNullability(true));
      }
      this.output = new ArrayList<>(output);
      this.none = new GenericInternalRow(makes.size());
    }

    @Override
    public void bind(List<Attribute> input) {
      bound = (Generator) Nodes.bound((Expression) generator, input);
      if (bound instanceof ExpressionsEvaluator evaluator) {
        evaluator.initialize(0);
      }
      List<Attribute> both = new ArrayList<>(input);
      both.addAll(makes);
      chosen = UnsafeProjection.create(Nodes.list(output), Nodes.list(both));
      joined = new JoinedRow();
    }

    @Override
    public InternalRow apply(InternalRow row) {
      throw new UnsupportedOperationException("a generator makes any number of rows");
    }

    /** The rows for a row, each valid until the next one is fetched. */
    Iterator<InternalRow> rows(InternalRow row) {
      scala.collection.Iterator<InternalRow> made = bound.eval(row).iterator();
      boolean lonely = outer && made.isEmpty();
      return new Iterator<>() {
        private boolean left = lonely;

        @Override
        public boolean hasNext() {
          return left || made.hasNext();
        }

        @Override
        public InternalRow next() {
          InternalRow one = left ? none : made.next();
          left = false;
          return chosen.apply(joined.apply(row, one));
        }
      };
    }
  }

  private final ArrayList<Step> steps = new ArrayList<>();
  /**
   * Copies a columnar row; null if it has no nested values. Spark's higher-order functions read the elements of an array even where these are NULL, and
   * a columnar array fails on that.
   */
  private transient UnsafeProjection held;
  /** The columns that each step reads; the first step's are resolved by name. */
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

  /** Merges a projection over another one, unless that would evaluate an expression more often. */
  void select(List<? extends Expression> columns, List<Attribute> input) {
    int last = steps.size() - 1;
    if (last >= 0 && steps.get(last) instanceof Select select) {
      Select below = select.as(input);
      if (below.foldsInto(columns)) {
        Seq<NamedExpression> folded = CollapseProject$.MODULE$.buildCleanedProjectList(named(columns), named(below.columns));
        steps.set(last, new Select(CollectionConverters.asJava(folded).stream().map(e -> (Expression) e).toList()));
        return;
      }
    }
    if (last >= 0 && steps.get(last) instanceof Attempted attempted) {
      RowAttempt folded = attempted.attempt.then(columns, input);
      if (folded != null) {
        steps.set(last, new Attempted(folded));
        return;
      }
    }
    add(new Select(columns), input);
  }

  private static Seq<NamedExpression> named(List<? extends Expression> columns) {
    return Nodes.list(columns.stream().map(column -> (NamedExpression) column).toList());
  }

  void attempt(RowAttempt attempt, List<Attribute> input) {
    int last = steps.size() - 1;
    if (last >= 0 && steps.get(last) instanceof Select below && below.columns.stream().allMatch(Nodes::isFree)) {
      steps.set(last, new Attempted(attempt.over(below.as(input).columns.stream().map(e -> (NamedExpression) e).toList())));
    } else {
      add(new Attempted(attempt), input);
    }
  }

  void generate(Generator generator, boolean outer, List<Attribute> makes, List<Attribute> output, List<Attribute> input) {
    add(new Generated(generator, outer, makes, output), input);
  }

  /** Whether the steps create rows, instead of passing on the input's. */
  boolean makesRows() {
    return !steps.isEmpty() && !(steps.get(steps.size() - 1) instanceof Where);
  }

  /** Compiles all steps. Leading filters pass rows on unchanged, so the step after them also reads the input's columns. */
  void bind(List<String> columns) {
    List<Attribute> nested = read();
    held = null;
    List<String> places = columns;
    if (nested.stream().anyMatch(a -> isNested(a.dataType()))) {
      held = UnsafeProjection.create(Nodes.list(nested), Nodes.list(named(nested, columns)));
      held.initialize(0);
      places = nested.stream().map(Attribute::name).toList();
    }
    boolean passed = true;
    for (int i = 0; i < steps.size(); i++) {
      steps.get(i).bind(passed ? named(inputs.get(i), places) : inputs.get(i));
      passed &= steps.get(i) instanceof Where;
    }
  }

  /** The input columns to bind by name: those of the leading filters and of the step after them. */
  private List<Attribute> read() {
    Map<String, Attribute> found = new LinkedHashMap<>();
    for (int i = 0; i < steps.size(); i++) {
      inputs.get(i).forEach(a -> found.putIfAbsent(a.name(), a));
      if (!(steps.get(i) instanceof Where)) {
        break;
      }
    }
    return new ArrayList<>(found.values());
  }

  private static boolean isNested(DataType type) {
    return type instanceof ArrayType || type instanceof MapType || type instanceof StructType;
  }

  void bind() {
    for (int i = 0; i < steps.size(); i++) {
      steps.get(i).bind(inputs.get(i));
    }
  }

  /** Starts the rows of a task with this number. */
  void begin(int task) {
    steps.forEach(step -> step.begin(task));
  }

  /** The attributes in column order; an unread column gets a placeholder. */
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

  /** Passes the rows that a row becomes to {@code to}. */
  void apply(InternalRow row, Rows to) throws IOException {
    if (held == null) {
      apply(0, row, to);
    } else if (makesRows()) {
      apply(0, held.apply(row), to);
    } else {
      apply(0, held.apply(row), kept -> to.take(row));
    }
  }

  private void apply(int first, InternalRow row, Rows to) throws IOException {
    InternalRow now = row;
    for (int i = first; i < steps.size(); i++) {
      if (steps.get(i) instanceof Generated generated) {
        for (Iterator<InternalRow> rows = generated.rows(now); rows.hasNext(); ) {
          apply(i + 1, rows.next(), to);
        }
        return;
      }
      now = steps.get(i).apply(now);
      if (now == null) {
        return;
      }
    }
    to.take(now);
  }
}
