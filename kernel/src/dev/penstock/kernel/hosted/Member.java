package dev.penstock.kernel.hosted;

import dev.penstock.kernel.error.AttemptPlan;
import dev.penstock.kernel.error.RowAttempt;
import dev.penstock.kernel.plan.SharedPart;
import dev.penstock.kernel.plan.SharedPlan;
import dev.penstock.kernel.row.Pack;
import dev.penstock.kernel.state.Keyed;
import dev.penstock.kernel.state.KeyedPlan;
import dev.penstock.kernel.state.SlotHandle;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Generate;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A query as a member of a shared job: its {@link Keyed} operators, and the branches that carry rows between them. Rows come from objects; each operator has a greater depth than all
 * operators that it reads.
 *
 * <p>The plan may contain only filters, projections, generators, unions and keyed operators, over scans and each other. A query without keyed operators only has branches from its objects to its
 * output. Expressions must be deterministic, run in the JVM, and not read the clock.
 */
public final class Member implements Serializable {
  private static final long serialVersionUID = 1L;
  /** In place of an operator: the output of the query. */
  static final int OUTPUT = -1;
  /** In place of an operator: how many rows were late. */
  static final int LATE = -2;

  /** A query that cannot share a job, and why. */
  public static final class Unfit extends RuntimeException {
    private static final long serialVersionUID = 1L;

    Unfit(String why) {
      super(why);
    }
  }

  /** A keyed operator, its number in the query, the schema of the rows that it reads, and its depth, from 1 on. */
  record Operator(Keyed keyed, int number, StructType input, int depth) implements Serializable {}

  /** The steps from an object, or from an operator ({@code object} is then negative), to an operator or to the output. */
  record Branch(int object, int from, int to, Steps steps) implements Serializable {}

  final ArrayList<Operator> operators = new ArrayList<>();
  final ArrayList<Branch> branches = new ArrayList<>();
  final ArrayList<Lookup.Table> tables = new ArrayList<>();
  final StructType output;

  private Member(StructType output) {
    this.output = output;
  }

  /** The query of a frame; {@link Unfit} if it cannot share a job. */
  public static Member of(Dataset<Row> frame) {
    var given = (org.apache.spark.sql.classic.Dataset<Row>) frame;
    SparkSession session = given.sparkSession();
    LogicalPlan plan = given.logicalPlan();
    if (plan.containsPattern(TreePattern.CURRENT_LIKE())) {
      throw new Unfit("it reads the clock");
    }
    LogicalPlan optimized = session.withActive(() -> session.sessionState().optimizer().execute(plan.clone()));
    Member member = new Member(frame.schema());
    Parts parts = member.new Parts(optimized);
    member.lead(parts.rows(optimized), OUTPUT, optimized);
    member.checkState();
    member.lookups(optimized);
    return member;
  }

  /** Finds the lookup tables of the plan. */
  private void lookups(LogicalPlan plan) {
    plan.foreach(node -> {
      node.expressions().foreach(e -> {
        e.foreach(found -> {
          if (found instanceof Lookup lookup && tables.stream().noneMatch(table -> table.id().equals(lookup.id()))) {
            tables.add(table(lookup));
          }
          return null;
        });
        return null;
      });
      return null;
    });
  }

  private static Lookup.Table table(Lookup lookup) {
    var frame = (org.apache.spark.sql.classic.Dataset<Row>) lookup.table();
    SparkSession session = frame.sparkSession();
    LogicalPlan plan = session.withActive(() -> session.sessionState().optimizer().execute(frame.logicalPlan().clone()));
    if (plan.exists(node -> node instanceof AttemptPlan)) {
      throw new Unfit("rows of a lookup table can fail");
    }
    Member alone = new Member(frame.schema());
    List<Source> sources = alone.new Parts(plan).rows(plan);
    if (sources.size() != 1 || sources.get(0).object < 0) {
      throw new Unfit("a lookup table is not a plain one");
    }
    Source source = whole(sources.get(0), plan);
    return new Lookup.Table(lookup.id(), source.object, source.steps);
  }

  private void lead(List<Source> sources, int to, LogicalPlan plan) {
    for (Source source : sources) {
      branches.add(new Branch(source.object, source.operator, to, whole(source, plan).steps));
    }
  }

  /** The source, extended so that it creates its rows instead of passing on the input's. */
  private static Source whole(Source source, LogicalPlan plan) {
    if (!source.steps.makesRows()) {
      source.steps.select(columns(plan), columns(plan));
    }
    return source;
  }

  int depth(int operator) {
    return operators.get(operator).depth;
  }

  /** The depths of its operators. */
  int[] depths() {
    return operators.stream().mapToInt(Operator::depth).toArray();
  }

  /** Checks that its state can be kept by a shared job. It opens the state of a copy, because that changes a processor. */
  private void checkState() {
    Member copy = of(bytes());
    for (int i = 0; i < operators.size(); i++) {
      StatefulProcessor<?, Row, Row> processor = copy.operators.get(i).keyed.processor();
      processor.setHandle(new SlotHandle(i, operators.get(i).number).handle());
      try {
        processor.init(OutputMode.Append(), TimeMode.EventTime());
      } catch (UnsupportedOperationException e) {
        throw new Unfit(e.getMessage());
      }
    }
  }

  /** The origin of the rows of a part of the plan, and the steps applied to them since. */
  private record Source(int object, int operator, Steps steps) {
    Source copy() {
      return new Source(object, operator, steps.copy());
    }
  }

  /** Decomposes a plan into operators and branches. */
  private final class Parts {
    private final Map<SharedPart, LogicalPlan> shared = new IdentityHashMap<>();
    private final Map<SharedPart, List<Source>> known = new IdentityHashMap<>();

    Parts(LogicalPlan plan) {
      plan.foreach(node -> {
        if (node instanceof SharedPlan.First first) {
          shared.put(first.part(), first.children().head());
        }
        return null;
      });
    }

    List<Source> rows(LogicalPlan plan) {
      if (plan instanceof StreamingRelationV2 scan) {
        return List.of(new Source(Integer.parseInt(scan.extraOptions().get("object")), OUTPUT, new Steps()));
      }
      if (plan instanceof KeyedPlan keyed) {
        return List.of(new Source(-1, operator(keyed), new Steps()));
      }
      if (plan instanceof SharedPlan.First first) {
        return shared(first.part());
      }
      if (plan instanceof SharedPlan.Again again) {
        return shared(again.part());
      }
      List<Source> sources = new ArrayList<>();
      if (plan instanceof Union union) {
        // Nodes above refer to the columns of the union by position.
        CollectionConverters.asJava(union.children())
            .forEach(child -> rows(child).forEach(source -> sources.add(whole(source, child))));
        return sources;
      }
      if (plan instanceof LocalRelation nothing && nothing.data().isEmpty()) {
        return sources;
      }
      if (!(plan instanceof Project || plan instanceof Filter || plan instanceof Generate || plan instanceof AttemptPlan
          || plan instanceof SubqueryAlias)) {
        throw unfit(plan);
      }
      LogicalPlan child = plan.children().head();
      sources.addAll(rows(child));
      sources.forEach(source -> step(plan, child, source.steps));
      return sources;
    }

    /** A part that is read in several places, each of which refers to its columns by position. */
    private List<Source> shared(SharedPart part) {
      List<Source> sources = known.get(part);
      if (sources == null) {
        LogicalPlan plan = shared.get(part);
        sources = rows(plan);
        sources.forEach(source -> whole(source, plan));
        known.put(part, sources);
      }
      return sources.stream().map(Source::copy).toList();
    }

    private int operator(KeyedPlan plan) {
      List<Source> sources = rows(plan.child());
      int depth = 1;
      for (Source source : sources) {
        depth = Math.max(depth, source.operator == OUTPUT ? 1 : depth(source.operator) + 1);
      }
      operators.add(new Operator(plan.keyed(), plan.number(), plan.child().schema(), depth));
      lead(sources, operators.size() - 1, plan.child());
      return operators.size() - 1;
    }
  }

  private static void step(LogicalPlan plan, LogicalPlan child, Steps steps) {
    if (plan instanceof Filter filter) {
      fit(List.of(filter.condition()));
      steps.where(filter.condition(), columns(child));
    } else if (plan instanceof Project project) {
      List<Expression> chosen = new ArrayList<>();
      CollectionConverters.asJava(project.projectList()).forEach(e -> chosen.add((Expression) e));
      fit(chosen);
      steps.select(chosen, columns(child));
    } else if (plan instanceof Generate generate) {
      fit(List.of((Expression) generate.generator()));
      steps.generate(
          generate.generator(), generate.outer(), CollectionConverters.asJava(generate.generatorOutput()), columns(plan),
          columns(child));
    } else if (plan instanceof AttemptPlan attempt) {
      RowAttempt one = RowAttempt.of(attempt);
      fit(one.expressions());
      steps.attempt(one, columns(child));
    }
  }

  private static void fit(List<? extends Expression> expressions) {
    for (Expression e : expressions) {
      if (e.exists(n -> n instanceof PythonUDF)) {
        throw new Unfit("it calls a Python function");
      }
      if (e.exists(n -> n instanceof SubqueryExpression || changes(n))) {
        throw new Unfit("an expression is not deterministic");
      }
    }
  }

  /** Whether the expression itself, not an argument, is non-deterministic in a way that matters. The row numbers of {@link Pack} do not matter. */
  private static boolean changes(Expression e) {
    return !e.deterministic() && e.children().forall(child -> ((Expression) child).deterministic()) && !(e instanceof Pack || e instanceof Lookup || e instanceof LateRow);
  }

  private static Unfit unfit(LogicalPlan plan) {
    return new Unfit("it has " + plan.nodeName().replaceAll("([a-z])([A-Z])", "$1 $2").toLowerCase() + " in its plan");
  }

  private static List<Attribute> columns(LogicalPlan plan) {
    return CollectionConverters.asJava(plan.output());
  }

  /** The schema of its rows, as JSON. */
  public String schema() {
    return output.json();
  }

  byte[] bytes() {
    return Copies.bytes(this);
  }

  static Member of(byte[] bytes) {
    return (Member) Copies.of(bytes);
  }
}
