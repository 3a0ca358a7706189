package dev.penstock.kernel.hosted;

import dev.penstock.kernel.error.ErrorChannel;
import dev.penstock.kernel.log.EpochInput;
import dev.penstock.kernel.log.EpochLoop;
import dev.penstock.kernel.state.SlotSizes;
import dev.penstock.kernel.state.StoredState;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.Serializable;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.PartitionIdPassthrough;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.rdd.ShuffledRDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.UnsafeRowSerializer;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Product2;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/**
 * A run of the job that queries with one keyed operator share. What its epochs do depends only on the members, who can change while it runs; so there is no plan for Spark to
 * make, and an epoch costs the same whether there is one member or a hundred.
 *
 * <p>An epoch is a Spark job of two stages: the members' code before the shuffle ({@link FanRdd}), and their operators with the state of all ({@link GroupRdd}). Few rows go through the
 * first in the driver, and with the tasks of the second, so that nothing is shuffled.
 */
public final class HostRun implements EpochLoop.Work {
  /** The property with the number of the epoch that a task works for. */
  private static final String EPOCH = "streaming.sql.batchId";
  /** How many rows of input, each once for every member, count as few. */
  private static final int FEW = 20_000;

  private static final ClassTag<Object> ANY = ClassTag$.MODULE$.apply(Object.class);
  private static final ClassTag<InternalRow> ROW = ClassTag$.MODULE$.apply(InternalRow.class);
  private static final ClassTag<EpochLoop.Done> DONE = ClassTag$.MODULE$.apply(EpochLoop.Done.class);

  private final SparkSession session;
  private final SparkContext spark;
  private final String job;
  private final Path folder;
  private final ErrorChannel errors;
  private final SlotSizes sizes;
  private final int parallelism;
  private final List<EpochLoop.Scan> scans = new ArrayList<>();
  private EpochLoop loop;
  private StoredState state;

  /** @param parallelism how many tasks read an object in a large epoch */
  public HostRun(
      org.apache.spark.sql.SparkSession session, String job, String folder, ErrorChannel errors, SlotSizes sizes,
      int parallelism) {
    this.session = (SparkSession) session;
    this.spark = this.session.sparkContext();
    this.job = job;
    this.folder = Path.of(folder);
    this.errors = errors;
    this.sizes = sizes;
    this.parallelism = parallelism;
  }

  /** An object that the members read; {@code schema}: its columns and {@code __to}, as JSON. */
  public void scan(int object, String schema) {
    StructType columns = (StructType) DataType.fromJson(schema);
    scans.add(new EpochLoop.Scan(object, columns, columns.size() - 1));
  }

  public void start() {
    loop = new EpochLoop(job, folder, scans, session.sessionState().conf().numShufflePartitions(), errors, this);
    loop.start();
  }

  public boolean active() {
    return loop != null && loop.active();
  }

  /** Why it ended; null if it runs, or was stopped. */
  public Throwable failure() {
    return loop == null ? null : loop.failure();
  }

  /** Ends it and waits until it has ended. */
  public void stop() throws InterruptedException {
    if (loop != null) {
      loop.stop(() -> spark.cancelJobGroup(job));
    }
  }

  @Override
  public void begin() {
    org.apache.spark.sql.SparkSession.setActiveSession(session);
    spark.setJobGroup(job, "epochs of keyed queries", true);
    // Tasks have the settings of the session from the properties of their job.
    CollectionConverters.asJava(session.sessionState().conf().getAllConfs()).forEach(spark::setLocalProperty);
    state = new StoredState(session, folder.resolve("checkpoint").toUri().toString());
  }

  @Override
  public void end() {
    if (state != null && !spark.isStopped()) {
      state.forget(session);
    }
  }

  @Override
  public void run(EpochLoop.Epoch epoch, EpochLoop.Done[] done) throws IOException {
    spark.setLocalProperty(EPOCH, Long.toString(epoch.number()));
    HostTable.Reference table = new HostTable.Reference(job);
    long rows = epoch.inputs().stream().mapToLong(EpochInput::rows).sum();
    boolean few = rows * Math.max(1, table.get().members().size()) <= FEW;
    GroupRdd groups = new GroupRdd(
        spark, table, errors, sizes, state, epoch,
        few ? fanned(table.get(), epoch) : null, few ? null : shuffled(table, epoch));
    spark.runJob(groups, new Only(), new Gather(done), DONE);
  }

  /** What the members make of few rows, by partition of the state. */
  private byte[][] fanned(HostTable host, EpochLoop.Epoch epoch) throws IOException {
    ErrorChannel here = errors.apart(epoch.number());
    ByteArrayOutputStream[] bytes = new ByteArrayOutputStream[epoch.partitions()];
    DataOutputStream[] outs = new DataOutputStream[bytes.length];
    for (int i = 0; i < bytes.length; i++) {
      bytes[i] = new ByteArrayOutputStream();
      outs[i] = new DataOutputStream(bytes[i]);
    }
    for (EpochInput input : epoch.inputs()) {
      if (input.rows() > 0) {
        try (Fan fan = new Fan(host, here, input)) {
          while (fan.hasNext()) {
            Packed one = fan.next();
            one.write(outs[one.partition(outs.length)]);
          }
        }
      }
    }
    errors.merge(here);
    byte[][] all = new byte[bytes.length][];
    for (int i = 0; i < all.length; i++) {
      all[i] = bytes[i].toByteArray();
    }
    return all;
  }

  private RDD<Tuple2<Object, InternalRow>> shuffled(HostTable.Reference table, EpochLoop.Epoch epoch) {
    List<EpochInput> pieces = new ArrayList<>();
    epoch.inputs().forEach(input -> pieces.addAll(input.spread(parallelism)));
    RDD<Product2<Object, InternalRow>> fans = new FanRdd(spark, table, errors, pieces, epoch.partitions());
    return new ShuffledRDD<Object, InternalRow, InternalRow>(
            fans, new PartitionIdPassthrough(epoch.partitions()), ANY, ROW, ROW)
        .setSerializer(new UnsafeRowSerializer(Packed.SCHEMA.size(), null));
  }

  /** What a task has done, which is all that its partition has. */
  private static final class Only
      extends AbstractFunction2<TaskContext, scala.collection.Iterator<EpochLoop.Done>, EpochLoop.Done>
      implements Serializable {
    private static final long serialVersionUID = 1L;

    @Override
    public EpochLoop.Done apply(TaskContext context, scala.collection.Iterator<EpochLoop.Done> one) {
      return one.next();
    }
  }

  /** Takes what the tasks have done. */
  private static final class Gather extends AbstractFunction2<Object, EpochLoop.Done, BoxedUnit> {
    private final EpochLoop.Done[] done;

    Gather(EpochLoop.Done[] done) {
      this.done = done;
    }

    @Override
    public BoxedUnit apply(Object partition, EpochLoop.Done one) {
      done[(Integer) partition] = one;
      return BoxedUnit.UNIT;
    }
  }
}
