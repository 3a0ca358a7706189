package dev.penstock.kernel.plan;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.TransformWithState;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.CalendarInterval;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A part of a query that is computed once and read in several places.
 *
 * <p>Spark's plans are trees, so a streaming operator in two places is two operators, each with its own state. Here the place that reads the part
 * {@link #first} has its plan, below a shuffle. A place that reads it {@link #again} has only a leaf, which reads the output of that
 * shuffle: for Spark it has no operators, no sources and no state.
 *
 * <p>The two find each other in every epoch: all nodes of a plan are prepared before the first of them is executed.
 */
public final class SharedPart {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String TIME = "__wm";

  private final Dataset<Row> frame;
  private SharedExec.First running;
  private String epoch;

  private SharedPart(Dataset<Row> frame) {
    this.frame = frame;
  }

  /** The part that a frame of a query computes. */
  public static SharedPart of(Dataset<Row> frame) {
    ExperimentalMethods methods = session(frame).experimental();
    synchronized (SharedPart.class) {
      if (!methods.extraStrategies().exists(s -> s instanceof SharedExec.Planning)) {
        methods.extraStrategies_$eq(
            (Seq<SparkStrategy>) methods.extraStrategies().appended(new SharedExec.Planning()));
      }
    }
    return new SharedPart(frame);
  }

  /** The part, computed here. */
  public Dataset<Row> first() {
    LogicalPlan plan = plan(frame);
    return Dataset$.MODULE$.ofRows(session(frame), new SharedPlan.First(this, plan.output(), plan));
  }

  /** The part, computed elsewhere, with its leading columns renamed to a JSON list of names. */
  public Dataset<Row> again(String names) throws JsonProcessingException {
    StructField[] fields = frame.schema().fields();
    String[] called = JSON.readValue(names, String[].class);
    StructType schema = new StructType();
    for (int i = 0; i < fields.length; i++) {
      String name = i < called.length ? called[i] : fields[i].name();
      schema = schema.add(new StructField(name, fields[i].dataType(), fields[i].nullable(), fields[i].metadata()));
    }
    List<Attribute> columns = new ArrayList<>(CollectionConverters.asJava(DataTypeUtils.toAttributes(schema)));
    Seq<Attribute> output = CollectionConverters.asScala(columns).toSeq();
    Dataset<Row> again = Dataset$.MODULE$.ofRows(session(frame), new SharedPlan.Again(this, output));
    UUID watermark = watermark(plan(frame));
    return watermark == null ? again : timed(again, watermark);
  }

  /**
   * Marks the frame so that Spark applies the part's watermark to it. The frame has the id of the part's
   * watermark node and only the smallest possible time, so it neither advances the watermark nor holds it back.
   */
  private static Dataset<Row> timed(Dataset<Row> again, UUID watermark) {
    LogicalPlan plan = plan(again.withColumn(TIME, functions.timestamp_micros(functions.lit(0L))));
    LogicalPlan node = new EventTimeWatermark(watermark, plan.output().last(), new CalendarInterval(0, 0, 0), plan);
    return Dataset$.MODULE$.ofRows(session(again), node).drop(TIME);
  }

  /** The watermark node of the plan, or null if there is none: the output of a processing-time operator has none. */
  private static UUID watermark(LogicalPlan plan) {
    if (plan instanceof EventTimeWatermark node) {
      return node.nodeId();
    }
    if (plan instanceof TransformWithState operator && operator.timeMode().equals(TimeMode.ProcessingTime())) {
      return null;
    }
    for (LogicalPlan child : CollectionConverters.asJava(plan.children())) {
      UUID found = watermark(child);
      if (found != null) {
        return found;
      }
    }
    return null;
  }

  /** Registers the node that computes the part in an epoch. */
  synchronized void offer(SharedExec.First part, String batch) {
    running = part;
    epoch = batch;
  }

  /** The rows of the part in the same epoch. */
  RDD<InternalRow> rows(Seq<Attribute> columns, String batch) {
    SharedExec.First part;
    synchronized (this) {
      if (running == null || epoch == null || !epoch.equals(batch)) {
        throw new IllegalStateException("a part that is read in several places is not computed in epoch " + batch);
      }
      part = running;
    }
    StructType have = DataTypeUtils.fromAttributes(part.output());
    StructType want = DataTypeUtils.fromAttributes(columns);
    boolean same = have.length() == want.length();
    for (int i = 0; same && i < have.length(); i++) {
      same = DataTypeUtils.sameType(have.apply(i).dataType(), want.apply(i).dataType());
    }
    if (!same) {
      throw new IllegalStateException("a part has " + have.sql() + " where it is computed, " + want.sql() + " where it is read");
    }
    return part.execute();
  }

  private static LogicalPlan plan(Dataset<Row> frame) {
    return ((org.apache.spark.sql.classic.Dataset<Row>) frame).logicalPlan();
  }

  private static SparkSession session(Dataset<Row> frame) {
    return (SparkSession) frame.sparkSession();
  }

  @Override
  public String toString() {
    return "part " + Integer.toHexString(System.identityHashCode(this));
  }
}
