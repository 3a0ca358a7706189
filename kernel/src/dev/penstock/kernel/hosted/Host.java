package dev.penstock.kernel.hosted;

import dev.penstock.kernel.error.ErrorChannel;
import dev.penstock.kernel.node.Nodes;
import dev.penstock.kernel.state.SlotSizes;
import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The plan of a job that queries with one keyed operator share: each scan goes through a {@link Fan} that does what the members do before the shuffle; one
 * shuffle by slot and key; one operator with the state of all ({@link HostProcessor}). The plan names no member, so they can
 * change while the job runs, and an epoch costs Spark the same whether there is one or a hundred.
 */
public final class Host {
  /** The key comes first: Spark sorts by the beginning of the first column, and keys begin with a hash. */
  private static final StructType KEY = new StructType()
      .add("key", DataTypes.BinaryType, false)
      .add("slot", DataTypes.IntegerType, false);
  private static final StructType OUTPUT = new StructType()
      .add("slot", DataTypes.IntegerType, false)
      .add("row", DataTypes.BinaryType, false);

  private Host() {}

  /** A scan of a shared job. */
  record Scan(String job, ErrorChannel errors, int object) implements Serializable {
    Fan fan(List<String> columns) {
      return new Fan(new HostTable.Reference(job), errors, object, columns);
    }
  }

  /**
   * The frame of a job: slot and packed row of each row that a member puts out.
   *
   * @param scans frames of the scans, with all columns of their objects and {@code __to}
   * @param objects the objects, in the order of the scans
   */
  public static Dataset<Row> frame(
      String job, List<Dataset<Row>> scans, List<Integer> objects, ErrorChannel errors, SlotSizes sizes) {
    Dataset<Row> fans = null;
    for (int i = 0; i < scans.size(); i++) {
      Dataset<Row> fan = fan(new Scan(job, errors, objects.get(i)), scans.get(i));
      fans = fans == null ? fan : fans.unionAll(fan);
    }
    return fans
        .groupBy(functions.col("key"), functions.col("slot"))
        .as(Encoders.row(KEY), Encoders.row(Fan.OUTPUT))
        .transformWithState(
            new HostProcessor(new HostTable.Reference(job), errors, sizes), TimeMode.None(), OutputMode.Append(),
            Encoders.row(OUTPUT));
  }

  private static Dataset<Row> fan(Scan scan, Dataset<Row> in) {
    SparkSession session = (SparkSession) in.sparkSession();
    plan(session);
    LogicalPlan child = Nodes.plan(in);
    return Dataset$.MODULE$.ofRows(session, new FanPlan(
        scan, Nodes.list(CollectionConverters.asJava(child.output())), Nodes.columns(Fan.OUTPUT), child));
  }

  private static void plan(SparkSession session) {
    ExperimentalMethods methods = session.experimental();
    synchronized (methods) {
      if (!methods.extraStrategies().exists(s -> s instanceof Planning)) {
        methods.extraStrategies_$eq((Seq<SparkStrategy>) methods.extraStrategies().appended(new Planning()));
      }
    }
  }

  /** How the fan of a scan is planned. */
  private static final class Planning extends SparkStrategy {
    @Override
    public Seq<SparkPlan> apply(LogicalPlan plan) {
      return plan instanceof FanPlan fan
          ? Nodes.list(List.of(new FanExec(fan.scan(), fan.output(), planLater(fan.child()))))
          : Nodes.list(List.of());
    }
  }
}
