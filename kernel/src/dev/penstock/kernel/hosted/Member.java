package dev.penstock.kernel.hosted;

import dev.penstock.kernel.error.AttemptPlan;
import dev.penstock.kernel.error.RowAttempt;
import dev.penstock.kernel.row.Pack;
import dev.penstock.kernel.state.Keyed;
import dev.penstock.kernel.state.KeyedPlan;
import dev.penstock.kernel.state.SlotHandle;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.ObjectStreamClass;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
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
 * A query as a member of a shared job: what it makes of the rows of each object that it reads, its {@link Keyed} operator, and what it makes of that
 * operator's rows.
 *
 * <p>The plan must be filters, projections and unions of scans, one keyed operator, then filters and projections. Expressions must be
 * deterministic and run in the JVM, and may not read the clock.
 */
public final class Member implements Serializable {
  private static final long serialVersionUID = 1L;

  /** A query that cannot share a job, and why. */
  public static final class Unfit extends RuntimeException {
    private static final long serialVersionUID = 1L;

    Unfit(String why) {
      super(why);
    }
  }

  /** What becomes of the rows of one scan. */
  record Branch(int object, Steps steps) implements Serializable {}

  final ArrayList<Branch> branches;
  /** Schema of the rows that the keyed operator reads. */
  final StructType input;
  final Keyed keyed;
  final Steps after;
  final StructType output;

  private Member(List<Branch> branches, StructType input, Keyed keyed, Steps after, StructType output) {
    this.branches = new ArrayList<>(branches);
    this.input = input;
    this.keyed = keyed;
    this.after = after;
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
    Steps after = new Steps();
    KeyedPlan keyed = above(optimized, after);
    if (!after.makesRows()) {
      after.select(columns(optimized), columns(optimized));
    }
    List<Branch> branches = below(keyed.child());
    for (Branch branch : branches) {
      if (!branch.steps.makesRows()) {
        branch.steps.select(columns(keyed.child()), columns(keyed.child()));
      }
    }
    Member member = new Member(branches, keyed.child().schema(), keyed.keyed(), after, frame.schema());
    member.checkState();
    return member;
  }

  /** Whether its state fits into that of a shared job. A copy is asked, because opening its state changes a processor. */
  private void checkState() {
    StatefulProcessor<?, Row, Row> processor = of(bytes()).keyed.processor();
    processor.setHandle(new SlotHandle().handle());
    try {
      processor.init(OutputMode.Append(), TimeMode.None());
    } catch (UnsupportedOperationException e) {
      throw new Unfit(e.getMessage());
    }
  }

  /** The steps above the keyed operator. */
  private static KeyedPlan above(LogicalPlan plan, Steps steps) {
    if (plan instanceof KeyedPlan keyed) {
      return keyed;
    }
    if (!(plan instanceof Project || plan instanceof Filter || plan instanceof AttemptPlan || plan instanceof SubqueryAlias)) {
      throw unfit(plan);
    }
    LogicalPlan child = plan.children().head();
    KeyedPlan keyed = above(child, steps);
    step(plan, child, steps);
    return keyed;
  }

  private static List<Branch> below(LogicalPlan plan) {
    if (plan instanceof StreamingRelationV2 scan) {
      Steps steps = new Steps();
      return List.of(new Branch(Integer.parseInt(scan.extraOptions().get("object")), steps));
    }
    List<Branch> branches = new ArrayList<>();
    if (plan instanceof Union union) {
      for (LogicalPlan child : CollectionConverters.asJava(union.children())) {
        List<Branch> of = below(child);
        // What is above knows the columns of the union by their places.
        of.stream().filter(b -> !b.steps.makesRows()).forEach(b -> b.steps.select(columns(child), columns(child)));
        branches.addAll(of);
      }
      return branches;
    }
    if (plan instanceof LocalRelation nothing && nothing.data().isEmpty()) {
      return branches;
    }
    if (!(plan instanceof Project || plan instanceof Filter || plan instanceof AttemptPlan || plan instanceof SubqueryAlias)) {
      throw unfit(plan);
    }
    LogicalPlan child = plan.children().head();
    branches.addAll(below(child));
    branches.forEach(branch -> step(plan, child, branch.steps));
    return branches;
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

  /** Whether it is an expression itself, and not its arguments, that is another each time. The numbers of rows in a task are of no consequence. */
  private static boolean changes(Expression e) {
    return !e.deterministic() && e.children().forall(child -> ((Expression) child).deterministic()) && !(e instanceof Pack);
  }

  private static Unfit unfit(LogicalPlan plan) {
    return new Unfit("it has " + plan.nodeName().replaceAll("([a-z])([A-Z])", "$1 $2").toLowerCase() + " beside its keyed operator");
  }

  private static List<Attribute> columns(LogicalPlan plan) {
    return CollectionConverters.asJava(plan.output());
  }

  /** The objects that it reads. */
  public String objects() {
    TreeSet<Integer> all = new TreeSet<>();
    branches.forEach(branch -> all.add(branch.object));
    return all.toString();
  }

  /** The schema of its rows, as JSON. */
  public String schema() {
    return output.json();
  }

  byte[] bytes() {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
      out.writeObject(this);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return bytes.toByteArray();
  }

  static Member of(byte[] bytes) {
    ClassLoader loader = Thread.currentThread().getContextClassLoader();
    try (ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(bytes)) {
      @Override
      protected Class<?> resolveClass(ObjectStreamClass type) throws IOException, ClassNotFoundException {
        try {
          return Class.forName(type.getName(), false, loader);
        } catch (ClassNotFoundException e) {
          return super.resolveClass(type);
        }
      }
    }) {
      return (Member) in.readObject();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    } catch (ClassNotFoundException e) {
      throw new IllegalStateException(e);
    }
  }
}
