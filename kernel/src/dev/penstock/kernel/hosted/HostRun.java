package dev.penstock.kernel.hosted;

import dev.penstock.kernel.error.ErrorChannel;
import dev.penstock.kernel.log.EpochInput;
import dev.penstock.kernel.log.EpochLoop;
import dev.penstock.kernel.log.EpochState;
import dev.penstock.kernel.log.PackedOutput;
import dev.penstock.kernel.log.Written;
import dev.penstock.kernel.state.EventTime;
import dev.penstock.kernel.state.SlotSizes;
import dev.penstock.kernel.state.StoredState;
import java.io.IOException;
import java.io.Serializable;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
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
 * A run of a job that queries share. The members, who can change while it runs, determine what its epochs do. So Spark plans nothing,
 * and the overhead of an epoch is the same for one member or a hundred.
 *
 * <p>First the members' code produces rows for their operators ({@link Fan}). Then each depth has one task per partition of its state ({@link GroupTask}), whose rows for
 * greater depths are passed on ({@link Onward}). If the input is small, the driver does the first step itself; otherwise Spark tasks do, followed by a shuffle
 * ({@link FanRdd}) unless no member has an operator ({@link OutputRdd}). The tasks of one depth are a Spark job ({@link GroupRdd}) if their rows come through a shuffle or executors are other
 * processes than the driver; otherwise the driver runs them ({@link DriverTasks}).
 */
public final class HostRun implements EpochLoop.Work {
  /** The property with the number of a task's epoch. */
  private static final String EPOCH = "streaming.sql.batchId";
  /** An input is small up to this many rows, each counted once per member, and this many bytes. */
  private static final int FEW = 20_000;
  private static final int FEW_BYTES = 1 << 23;

  private static final ClassTag<Object> ANY = ClassTag$.MODULE$.apply(Object.class);
  private static final ClassTag<InternalRow> ROW = ClassTag$.MODULE$.apply(InternalRow.class);
  private static final ClassTag<GroupTask.Done> DONE = ClassTag$.MODULE$.apply(GroupTask.Done.class);
  private static final ClassTag<Written> WRITTEN = ClassTag$.MODULE$.apply(Written.class);

  private final SparkSession session;
  private final SparkContext spark;
  private final String job;
  private final Path folder;
  private final ErrorChannel errors;
  private final SlotSizes sizes;
  private final int parallelism;
  private final DriverTasks tasks;
  private final List<EpochLoop.Scan> scans = new ArrayList<>();
  private EpochLoop loop;
  private StoredState stored;
  private Replicas replicas;

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
    this.tasks = new DriverTasks(spark, parallelism);
  }

  /** An object that the members read; {@code schema}: its columns, {@code __pwm}, {@code __lsn} and {@code __to}, as JSON. */
  public void scan(int object, String schema) {
    StructType columns = (StructType) DataType.fromJson(schema);
    scans.add(new EpochLoop.Scan(object, columns, columns.size() - 3));
  }

  public void start() {
    loop = new EpochLoop(job, folder, scans, session.sessionState().conf().numShufflePartitions(), errors, this);
    replicas = new Replicas(loop);
    loop.start();
  }

  public boolean active() {
    return loop != null && loop.active();
  }

  /** Why it failed; null if it is running or was stopped. */
  public Throwable failure() {
    return loop == null ? null : loop.failure();
  }

  /** Milliseconds that the run waited for its last epoch, and that this epoch took; empty if there was none. */
  public long[] durations() {
    return loop == null ? new long[0] : loop.durations();
  }

  /** Stops the run and waits for its end. */
  public void stop() throws InterruptedException {
    if (loop != null) {
      loop.stop(() -> spark.cancelJobGroup(job));
    }
  }

  @Override
  public void begin() {
    org.apache.spark.sql.SparkSession.setActiveSession(session);
    spark.setJobGroup(job, "epochs of queries that share a job", true);
    // Tasks read the session's settings from the properties of their job.
    CollectionConverters.asJava(session.sessionState().conf().getAllConfs()).forEach(spark::setLocalProperty);
    stored = new StoredState(session, folder.resolve("checkpoint").toUri().toString());
  }

  @Override
  public void end() {
    replicas.close();
    if (stored != null && !spark.isStopped()) {
      stored.forget(session);
    }
  }

  @Override
  public List<EpochState> run(EpochLoop.Epoch epoch, List<Written> written) throws Exception {
    spark.setLocalProperty(EPOCH, Long.toString(epoch.number()));
    EventTime.reaches(epoch.times().after() == EpochLoop.Times.NONE ? null : epoch.times().after());
    HostTable.Reference table = new HostTable.Reference(job);
    HostTable host = table.get();
    host.show(replicas.prepare(host, epoch));
    int partitions = epoch.partitions();
    RDD<Tuple2<Object, InternalRow>> many = null;
    List<Onward.Part> parts = new ArrayList<>();
    try {
      if (few(host, epoch)) {
        fan(host, epoch, parts, written);
      } else if (host.depth() == 0 && epoch.state().isEmpty()) {
        spread(table, epoch, written);
      } else {
        many = shuffled(table, epoch);
      }
      List<EpochState> state = new ArrayList<>(epoch.state());
      int depths = Math.max(host.depth(), state.size() / partitions);
      while (state.size() < depths * partitions) {
        state.add(EpochState.NOTHING);
      }
      for (int depth = 1; depth <= depths; depth++) {
        List<GroupTask.Piece> pieces =
            pieces(depth, parts, state, partitions, many, epoch.times(), !table.sweeps().isEmpty());
        if (!pieces.isEmpty()) {
          int floor = (depth - 1) * partitions;
          GroupTask task = new GroupTask(table, stored, depth, epoch);
          Consumer<GroupTask.Done> take = done -> {
            written.add(done.written());
            parts.addAll(done.onward());
            state.set(floor + done.partition(), done.state());
          };
          if (many == null && spark.isLocal()) {
            here(task, epoch.number(), pieces, take);
          } else {
            spark.runJob(
                new GroupRdd(spark, task, errors, sizes, pieces, many), new Only<>(),
                new Gather<GroupTask.Done>((piece, done) -> take.accept(done)), DONE);
          }
        }
        many = null;
      }
      return state;
    } finally {
      parts.forEach(Onward.Part::discard);
    }
  }

  private static boolean few(HostTable host, EpochLoop.Epoch epoch) {
    long rows = epoch.inputs().stream().mapToLong(EpochInput::rows).sum();
    long bytes = epoch.inputs().stream().mapToLong(EpochInput::bytes).sum();
    return rows * Math.max(1, host.members().size()) <= FEW && bytes <= FEW_BYTES;
  }

  /** The pieces of work at a depth. A partition without rows has none, unless a timer is due or state is to be removed. */
  private static List<GroupTask.Piece> pieces(
      int depth, List<Onward.Part> parts, List<EpochState> state, int partitions, RDD<?> many, EpochLoop.Times times,
      boolean all) {
    List<GroupTask.Piece> pieces = new ArrayList<>();
    for (int i = 0; i < partitions; i++) {
      int partition = i;
      List<Onward.Part> own =
          parts.stream().filter(part -> part.depth() == depth && part.partition() == partition).toList();
      EpochState known = state.get((depth - 1) * partitions + partition);
      if (many != null || !own.isEmpty() || all || known.due() <= EventTime.shifted(times.after())) {
        pieces.add(new GroupTask.Piece(
            pieces.size(), partition, known, many == null ? rows(own, false) : null, rows(own, true),
            many == null ? null : many.partitions()[partition]));
      }
    }
    return pieces;
  }

  private static ArrayList<Onward.Part> rows(List<Onward.Part> parts, boolean after) {
    return new ArrayList<>(parts.stream().filter(part -> part.after() == after).toList());
  }

  /** Runs the members' first step in the driver. */
  private void fan(HostTable host, EpochLoop.Epoch epoch, List<Onward.Part> parts, List<Written> written)
      throws IOException {
    ErrorChannel here = errors.apart(epoch.number());
    Onward.Writer onward = new Onward.Writer(epoch.output().folder(), epoch.partitions(), false);
    boolean done = false;
    try (PackedOutput.Task out = epoch.output().task()) {
      try {
        for (EpochInput input : epoch.inputs()) {
          if (input.rows() > 0) {
            try (Fan fan = new Fan(host, here, input, out::write)) {
              while (fan.hasNext()) {
                Packed one = fan.next();
                HostTable.Entry entry = host.entry(one.slot());
                if (one.operator() == Member.LATE) {
                  out.late(one.slot(), Packed.number(one.row()));
                } else if (entry != null) {
                  onward.add(entry.depths()[one.operator()], one);
                }
              }
            }
          }
        }
        written.add(out.finish());
        parts.addAll(onward.finish());
        done = true;
      } finally {
        if (!done) {
          out.discard();
          onward.discard();
        }
      }
    }
    errors.merge(here);
  }

  /** Runs the pieces in this process, and adds their counters when all have finished. */
  private void here(GroupTask task, long epoch, List<GroupTask.Piece> pieces, Consumer<GroupTask.Done> take)
      throws Exception {
    List<ErrorChannel> failed = new ArrayList<>();
    List<SlotSizes> counted = new ArrayList<>();
    List<Callable<GroupTask.Done>> work = new ArrayList<>();
    for (GroupTask.Piece piece : pieces) {
      ErrorChannel own = errors.apart(epoch);
      SlotSizes changes = sizes.apart();
      failed.add(own);
      counted.add(changes);
      work.add(() -> task.work(piece, Groups.of(piece.rows()), own, changes));
    }
    tasks.run(work, take);
    failed.forEach(errors::merge);
    counted.forEach(sizes::merge);
  }

  /** Runs members without operators in Spark tasks. */
  private void spread(HostTable.Reference table, EpochLoop.Epoch epoch, List<Written> written) {
    List<EpochInput> pieces = pieces(epoch);
    Written[] all = new Written[pieces.size()];
    try {
      spark.runJob(
          new OutputRdd(spark, table, errors, pieces, epoch.output()), new Only<>(),
          new Gather<Written>((piece, one) -> all[piece] = one), WRITTEN);
    } finally {
      // Output follows the order of the input.
      Arrays.stream(all).filter(Objects::nonNull).forEach(written::add);
    }
  }

  /** The input of an epoch, split for tasks. */
  private List<EpochInput> pieces(EpochLoop.Epoch epoch) {
    List<EpochInput> pieces = new ArrayList<>();
    epoch.inputs().forEach(input -> pieces.addAll(input.spread(parallelism)));
    return pieces;
  }

  private RDD<Tuple2<Object, InternalRow>> shuffled(HostTable.Reference table, EpochLoop.Epoch epoch) {
    RDD<Product2<Object, InternalRow>> fans = new FanRdd(spark, table, errors, pieces(epoch), epoch.partitions());
    return new ShuffledRDD<Object, InternalRow, InternalRow>(
            fans, new PartitionIdPassthrough(epoch.partitions()), ANY, ROW, ROW)
        .setSerializer(new UnsafeRowSerializer(Packed.SCHEMA.size(), null));
  }

  /** The result of a task: the only element of its partition. */
  private static final class Only<T> extends AbstractFunction2<TaskContext, scala.collection.Iterator<T>, T>
      implements Serializable {
    private static final long serialVersionUID = 1L;

    @Override
    public T apply(TaskContext context, scala.collection.Iterator<T> one) {
      return one.next();
    }
  }

  /** Takes the results of the tasks one at a time. */
  private static final class Gather<T> extends AbstractFunction2<Object, T, BoxedUnit> {
    private final BiConsumer<Integer, T> to;

    Gather(BiConsumer<Integer, T> to) {
      this.to = to;
    }

    @Override
    public synchronized BoxedUnit apply(Object task, T done) {
      to.accept((Integer) task, done);
      return BoxedUnit.UNIT;
    }
  }
}
