package dev.penstock.kernel.log;

import dev.penstock.kernel.node.ExecLeaf;
import dev.penstock.kernel.node.Nodes;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.EmptyBlock$;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.CodegenSupport;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.streaming.operators.stateful.EventTimeStatsAccum;
import org.apache.spark.sql.execution.streaming.operators.stateful.EventTimeWatermarkExec;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Replaces Spark's watermark node for scans of the log, where all rows of an epoch have the same watermark: it updates the statistics when the watermark changes, not for every row. It also generates code;
 * Spark's own node breaks whole-stage code generation between the scan and the next node, which copies every row.
 *
 * <p>Spark takes the watermark of an epoch from its own node, which is the second child. That node is never executed; this one adds to its accumulator.
 */
public final class WatermarkExec extends SparkPlan implements CodegenSupport {
  private static final long serialVersionUID = 1L;
  private static final String COLUMN = "__wm";

  private final SparkPlan rows;
  private final SparkPlan mark;
  private CodegenSupport parent;

  public WatermarkExec(SparkPlan rows, SparkPlan mark) {
    this.rows = rows;
    this.mark = mark;
  }

  /** Makes a session plan watermarks of the log as this node. */
  public static void plan(SparkSession session) {
    ExperimentalMethods methods = ((org.apache.spark.sql.classic.SparkSession) session).experimental();
    synchronized (methods) {
      if (!methods.extraStrategies().exists(s -> s instanceof Planning)) {
        methods.extraStrategies_$eq((Seq<SparkStrategy>) methods.extraStrategies().appended(new Planning()));
      }
    }
  }

  private static final class Planning extends SparkStrategy {
    @Override
    public Seq<SparkPlan> apply(LogicalPlan plan) {
      if (!(plan instanceof EventTimeWatermark given) || !given.eventTime().name().equals(COLUMN)) {
        return Nodes.list(List.of());
      }
      SparkPlan mark = new EventTimeWatermarkExec(
          given.nodeId(), given.eventTime(), given.delay(), new Nothing(given.child().output()));
      return Nodes.list(List.of(new WatermarkExec(planLater(given.child()), mark)));
    }
  }

  /** A placeholder child that is never executed. */
  public static final class Nothing extends ExecLeaf {
    private static final long serialVersionUID = 1L;

    public Nothing(Seq<Attribute> output) {
      super(output);
    }

    @Override
    protected Object[] parts() {
      return new Object[] {};
    }

    @Override
    public RDD<InternalRow> doExecute() {
      throw new UnsupportedOperationException("nobody reads it");
    }
  }

  /** The watermarks of one task; called by generated code. */
  public static final class Seen {
    private final EventTimeStatsAccum stats;
    private long last = Long.MIN_VALUE;

    public Seen(EventTimeStatsAccum stats) {
      this.stats = stats;
    }

    /** @param watermark in microseconds */
    public void see(long watermark) {
      if (watermark != last) {
        last = watermark;
        stats.add(watermark / 1000);
      }
    }
  }

  /** Spark's node, which may be wrapped in an adapter. */
  private EventTimeWatermarkExec spark() {
    SparkPlan found = mark;
    while (!(found instanceof EventTimeWatermarkExec)) {
      found = found.children().head();
    }
    return (EventTimeWatermarkExec) found;
  }

  private int place() {
    List<Attribute> columns = CollectionConverters.asJava(rows.output());
    for (int i = 0; i < columns.size(); i++) {
      if (columns.get(i).exprId().equals(spark().eventTime().exprId())) {
        return i;
      }
    }
    throw new IllegalStateException("no column " + COLUMN);
  }

  @Override
  public Seq<Attribute> output() {
    return mark.output();
  }

  // With generated code

  @Override
  public Seq<RDD<InternalRow>> inputRDDs() {
    return ((CodegenSupport) rows).inputRDDs();
  }

  @Override
  public String doProduce(CodegenContext context) {
    return ((CodegenSupport) rows).produce(context, this);
  }

  @Override
  public String doConsume(CodegenContext context, Seq<ExprCode> input, ExprCode row) {
    String stats = context.addReferenceObj("watermarks", spark().eventTimeStats(), EventTimeStatsAccum.class.getName());
    String own = Seen.class.getName().replace('$', '.');
    String seen = context.addMutableState(own, "seen", name -> name + " = new " + own + "(" + stats + ");", false, true);
    ExprCode now = input.apply(place());
    ExprCode evaluated = new ExprCode(EmptyBlock$.MODULE$, now.isNull(), now.value());
    String told = now.code() + "\n" + seen + ".see(" + now.value() + ");\n";
    return told + consume(context, (Seq<ExprCode>) input.updated(place(), evaluated), null);
  }

  @Override
  public boolean needCopyResult() {
    return ((CodegenSupport) rows).needCopyResult();
  }

  @Override
  public CodegenSupport parent() {
    return parent;
  }

  @Override
  public void parent_$eq(CodegenSupport plan) {
    parent = plan;
  }

  // Row by row

  @Override
  public RDD<InternalRow> doExecute() {
    EventTimeStatsAccum stats = spark().eventTimeStats();
    int at = place();
    FlatMapFunction<Iterator<InternalRow>, InternalRow> function = given -> {
      Seen seen = new Seen(stats);
      return new Iterator<>() {
        @Override
        public boolean hasNext() {
          return given.hasNext();
        }

        @Override
        public InternalRow next() {
          InternalRow row = given.next();
          seen.see(row.getLong(at));
          return row;
        }
      };
    };
    return rows.execute().toJavaRDD().mapPartitions(function).rdd();
  }

  @Override
  public Seq<SparkPlan> children() {
    return Nodes.list(List.of(rows, mark));
  }

  @Override
  public SparkPlan withNewChildrenInternal(IndexedSeq<SparkPlan> children) {
    return new WatermarkExec(children.apply(0), children.apply(1));
  }

  @Override
  public int productArity() {
    return 2;
  }

  @Override
  public Object productElement(int n) {
    return n == 0 ? rows : mark;
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof WatermarkExec;
  }
}
