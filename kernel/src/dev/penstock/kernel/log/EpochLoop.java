package dev.penstock.kernel.log;

import dev.penstock.kernel.error.ErrorChannel;
import dev.penstock.kernel.state.CrashPoint;
import java.io.IOException;
import java.io.Serializable;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.types.StructType;

/**
 * Runs the epochs of a job whose plan never changes, outside Spark's streaming engine, which analyses, plans and compiles every epoch from scratch.
 *
 * <p>The {@link EpochFile} has the input of an epoch before the epoch starts. An epoch that started but did not finish, because it failed or the process ended, is replayed first, with the same
 * input, state and number. By the number Python knows whether it has recorded the epoch.
 */
public final class EpochLoop {
  /** An object that the job reads. {@code schema}: its columns, then those computed on reading; {@code columns}: the number of stored ones. */
  public record Scan(int object, StructType schema, int columns) {}

  /**
   * An epoch to run.
   *
   * @param after the LSN after which it reads
   * @param upTo the LSN up to which it reads
   * @param times its watermarks
   * @param partitions number of partitions of the state
   * @param state the state before it, by depth and partition
   * @param output where its tasks write
   */
  public record Epoch(
      long number, long after, long upTo, Times times, List<EpochInput> inputs, int partitions, List<EpochState> state,
      PackedOutput output) {}

  /**
   * The watermarks (Unix ms) before an epoch and after it.
   *
   * @param begun the newest member that had started before it; newer ones have no watermark before it
   */
  public record Times(long before, long after, int begun) implements Serializable {
    /** There is no watermark. */
    public static final long NONE = JobTime.NONE;
  }

  /** All rows of an object at an LSN. */
  public record Contents(long lsn, EpochInput rows) {}

  /** Runs epochs. Always called by the loop's thread. */
  public interface Work {
    /** Before the first epoch. */
    void begin();

    /** Runs an epoch and returns the new state. Adds the tasks' output to {@code written}, even if the epoch fails. */
    List<EpochState> run(Epoch epoch, List<Written> written) throws Exception;

    /** After the last epoch. */
    void end();
  }

  private final EpochClock clock;
  private final EpochFile file;
  private final EpochOutput output;
  private final List<Scan> scans;
  private final String outputs;
  private final int partitions;
  private final Work work;
  private final Thread thread;
  private volatile boolean stopped;
  private volatile Throwable failure;
  private long waited;
  private volatile long[] durations = {};

  /**
   * @param folder the job's folder
   * @param partitions number of partitions of the state of a new job
   */
  public EpochLoop(String job, Path folder, List<Scan> scans, int partitions, ErrorChannel errors, Work work) {
    this.clock = EpochClock.of(job);
    this.file = new EpochFile(folder.resolve("checkpoint").resolve("epoch"), clock);
    this.output = new EpochOutput(job, errors);
    this.scans = List.copyOf(scans);
    this.outputs = folder.resolve("out").toString();
    this.partitions = partitions;
    this.work = work;
    this.thread = new Thread(this::run, "penstock-epochs-" + job);
    thread.setDaemon(true);
  }

  public void start() {
    thread.start();
  }

  /** Whether it is running; false once it has failed. */
  public boolean active() {
    return thread.isAlive();
  }

  /** Why it failed; null if it is running or was stopped. */
  public Throwable failure() {
    return failure;
  }

  /** Milliseconds that the loop waited for its last epoch, and that this epoch took; empty if there was none. */
  public long[] durations() {
    return durations;
  }

  /** Stops the loop, even in the middle of an epoch, and waits for its end. Meanwhile it calls {@code cancel} repeatedly, which must cancel what the thread waits for. */
  public void stop(Runnable cancel) throws InterruptedException {
    stopped = true;
    while (thread.isAlive()) {
      thread.interrupt();
      cancel.run();
      thread.join(100);
    }
  }

  /** The contents of an object, as given to the clock; null if not given. */
  public Contents contents(int object) {
    EpochClock.Contents given = clock.contents(object);
    return given == null ? null : new Contents(given.lsn(), input(object, given.slices()));
  }

  /** The changes of an object in (after, upTo]. */
  public EpochInput changes(int object, long after, long upTo) {
    return input(object, clock.changes(object, after, upTo));
  }

  /** The LSN after which a new member that skips the history reads an object; 0 if it reads the history. */
  public long goesOn(int slot, int object) {
    return clock.goesOn(slot, object);
  }

  private EpochInput input(int object, List<LogSlice> slices) {
    Scan scan = scans.stream().filter(s -> s.object == object).findFirst().orElseThrow();
    return new EpochInput(object, scan.schema, scan.columns, slices);
  }

  private void run() {
    try {
      work.begin();
      follow();
    } catch (Throwable e) {
      if (!stopped) {
        failure = e;
      }
    } finally {
      work.end();
    }
  }

  private void follow() throws Exception {
    EpochFile.Epoch last = file.read();
    LogOffset at = last == null ? clock.initial() : last.done() ? last.end() : last.start();
    clock.resumeAfter(at);
    if (last != null && !last.done()) {
      last = carryOut(last);
    }
    while (!stopped) {
      LogOffset start = last == null ? at : last.end();
      long waiting = System.nanoTime();
      LogOffset end = clock.latest(0, start);
      if (!end.equals(start)) {
        EpochFile.Epoch next = last == null
            ? new EpochFile.Epoch(0, start, end, partitions, List.of(), null, 0)
            : new EpochFile.Epoch(
                last.number() + 1, start, end, last.partitions(), last.after(), null, last.recorded());
        waited = (System.nanoTime() - waiting) / 1_000_000;
        file.write(next);
        CrashPoint.reached("jvm.begun");
        last = carryOut(next);
      }
    }
  }

  /** Runs an epoch, records its output and state, and returns it as done. */
  private EpochFile.Epoch carryOut(EpochFile.Epoch epoch) throws Exception {
    long begun = System.nanoTime();
    List<EpochInput> inputs = new ArrayList<>();
    for (Scan scan : scans) {
      inputs.add(new EpochInput(
          scan.object, scan.schema, scan.columns, clock.plan(scan.object, epoch.start(), epoch.end())));
    }
    List<Written> written = new ArrayList<>();
    List<EpochState> state;
    long recorded;
    try {
      state = work.run(
          new Epoch(
              epoch.number(), epoch.start().lsn, epoch.end().lsn,
              new Times(epoch.start().wm(), epoch.end().wm(), epoch.start().roster), inputs, epoch.partitions(),
              epoch.before(),
              new PackedOutput(clock.layouts(), epoch.number(), outputs)),
          written);
      took(begun);
      CrashPoint.reached("jvm.ran");
      recorded = output.deliver(epoch.number(), written);
      CrashPoint.reached("jvm.delivered");
    } catch (Throwable e) {
      written.forEach(Written::discard);
      throw e;
    }
    EpochFile.Epoch made = epoch.done(state, recorded);
    file.write(made);
    CrashPoint.reached("jvm.done");
    took(begun);
    return made;
  }

  private void took(long begun) {
    durations = new long[] {waited, (System.nanoTime() - begun) / 1_000_000};
  }
}
