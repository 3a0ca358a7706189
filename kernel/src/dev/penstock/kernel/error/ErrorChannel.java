package dev.penstock.kernel.error;

import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.lang.ref.WeakReference;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.util.AccumulatorV2;
import org.apache.spark.util.TaskFailureListener;
import scala.Option;

/**
 * Carries the errors of a job's rows from the tasks to the sink. It is separate from the rows, so operators that cannot fail are not involved.
 *
 * <p>Each task reports its failures. The driver keeps the reports by stage and partition, so a retried task replaces its report. The
 * sink drains the reports of an epoch when it commits the epoch, after all its tasks have reported. A task keeps
 * at most {@value #INLINE_BYTES} bytes in memory; the rest goes to files in the job's output folder.
 */
public final class ErrorChannel extends AccumulatorV2<ErrorChannel.Failure, Long> {
  private static final long serialVersionUID = 1L;
  private static final int INLINE_BYTES = 1 << 20;
  /** The property with the batch id of a query's tasks. */
  private static final String EPOCH = "streaming.sql.batchId";
  private static final Map<Long, WeakReference<ErrorChannel>> ALL = new ConcurrentHashMap<>();

  /** The origin of a report. */
  private record Place(int stage, int partition) implements Serializable {}

  /** The failed expression of a query of the job, the reason, and the row (as JSON). */
  record What(int query, String expression, String error, String row) implements Serializable {
    private static final int OVERHEAD = 64;

    int bytes() {
      return OVERHEAD + expression.length() + error.length() + row.length();
    }
  }

  /** The number of failing copies of a row; negative if they are retracted. */
  public record Failure(What what, long weight) implements Serializable {}

  /** Errors of a query: Arrow record-batch messages, inline or in a file. */
  public record Part(int query, String path, byte[] bytes, long rows) implements Serializable {}

  /** The errors found by one attempt of a task. */
  private static final class Report implements Serializable {
    private static final long serialVersionUID = 1L;
    final long attempt;
    final long epoch;
    final LinkedHashMap<What, Long> rows;
    final ArrayList<Part> files;
    int bytes;

    Report(long attempt, long epoch) {
      this(attempt, epoch, new LinkedHashMap<>(), new ArrayList<>());
    }

    private Report(long attempt, long epoch, LinkedHashMap<What, Long> rows, ArrayList<Part> files) {
      this.attempt = attempt;
      this.epoch = epoch;
      this.rows = rows;
      this.files = files;
    }

    Report copy() {
      return new Report(attempt, epoch, new LinkedHashMap<>(rows), new ArrayList<>(files));
    }

    void add(What what, long weight) {
      bytes += what.bytes();
      rows.merge(what, weight, (a, b) -> a + b == 0 ? null : a + b);
    }

    void discard() {
      files.forEach(ErrorChannel::delete);
    }
  }

  private final HashMap<Place, Report> reports;
  private String folder;
  private transient Report mine;

  private ErrorChannel(HashMap<Place, Report> reports, String folder) {
    this.reports = reports;
    this.folder = folder;
  }

  /** Creates the channel of a job that is being planned. */
  public static ErrorChannel create(SparkSession spark) {
    ErrorChannel channel = new ErrorChannel(new HashMap<>(), null);
    channel.register(((org.apache.spark.sql.classic.SparkSession) spark).sparkContext(), Option.empty(), false);
    ALL.values().removeIf(r -> r.get() == null);
    ALL.put(channel.id(), new WeakReference<>(channel));
    return channel;
  }

  /** The channel with this id; null if there is none, as outside of queries. */
  public static ErrorChannel of(long id) {
    WeakReference<ErrorChannel> found = ALL.get(id);
    return found == null ? null : found.get();
  }

  /** Starts a run of the job, whose tasks write large reports to a folder. Discards the reports of a failed run. */
  public synchronized void open(String outputs) {
    reports.values().forEach(Report::discard);
    reports.clear();
    folder = outputs;
  }

  /** A separate channel for the driver's own work on an epoch; merge it into this one afterwards. */
  public synchronized ErrorChannel apart(long epoch) {
    ErrorChannel own = new ErrorChannel(new HashMap<>(), folder);
    own.mine = new Report(0, epoch);
    own.reports.put(new Place(-1, -1), own.mine);
    return own;
  }

  /** Reports an error of the current task. */
  public void report(int query, String expression, String error, String row, long weight) {
    if (weight != 0) {
      add(new Failure(new What(query, expression, error, row), weight));
    }
  }

  @Override
  public synchronized void add(Failure failure) {
    if (mine == null) {
      TaskContext task = TaskContext.get();
      String epoch = task.getLocalProperty(EPOCH);
      mine = new Report(task.taskAttemptId(), epoch == null ? 0 : Long.parseLong(epoch));
      reports.put(new Place(task.stageId(), task.partitionId()), mine);
      Report report = mine;
      task.addTaskFailureListener((TaskFailureListener) (context, error) -> report.discard());
    }
    mine.add(failure.what, failure.weight);
    if (mine.bytes > INLINE_BYTES && folder != null) {
      spill(mine);
    }
  }

  private void spill(Report report) {
    batches(report.rows).forEach((query, rows) -> {
      Path path = Path.of(folder, report.epoch + "-errors-" + query + "-" + UUID.randomUUID() + ".arrow");
      try {
        Files.createDirectories(path.getParent());
        report.files.add(new Part(query, path.toString(), null, rows.size()));
        Files.write(path, ErrorBatch.message(rows));
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    });
    report.rows.clear();
    report.bytes = 0;
  }

  private static Map<Integer, List<Failure>> batches(Map<What, Long> rows) {
    Map<Integer, List<Failure>> out = new TreeMap<>();
    rows.forEach((what, weight) ->
        out.computeIfAbsent(what.query, q -> new ArrayList<>()).add(new Failure(what, weight)));
    return out;
  }

  /** Removes and returns the errors of an epoch whose tasks have all finished; errors of earlier epochs are discarded. */
  public synchronized List<Part> drain(long epoch) {
    List<Part> parts = new ArrayList<>();
    Map<What, Long> inline = new LinkedHashMap<>();
    for (Report report : reports.values()) {
      if (report.epoch != epoch) {
        report.discard();
        continue;
      }
      parts.addAll(report.files);
      report.rows.forEach((what, weight) -> inline.merge(what, weight, (a, b) -> a + b == 0 ? null : a + b));
    }
    reports.clear();
    batches(inline).forEach((query, rows) -> parts.add(new Part(query, null, ErrorBatch.message(rows), rows.size())));
    return parts;
  }

  /** Removes the file of a part, if it has one. */
  public static void delete(Part part) {
    if (part.path != null) {
      try {
        Files.deleteIfExists(Path.of(part.path));
      } catch (IOException e) {
        // Opening the database cleans the job's output folder.
      }
    }
  }

  @Override
  public synchronized void merge(AccumulatorV2<Failure, Long> other) {
    ((ErrorChannel) other).reports.forEach((place, report) -> reports.merge(place, report, ErrorChannel::merged));
  }

  /** Keeps the later of two attempts of a task; merges the reports of one attempt, which may use several copies of the channel. */
  private static Report merged(Report a, Report b) {
    if (a.attempt != b.attempt) {
      Report older = a.attempt < b.attempt ? a : b;
      older.discard();
      return older == a ? b : a;
    }
    b.rows.forEach(a::add);
    a.files.addAll(b.files);
    return a;
  }

  @Override
  public synchronized boolean isZero() {
    return reports.isEmpty();
  }

  @Override
  public synchronized ErrorChannel copy() {
    HashMap<Place, Report> copies = new HashMap<>();
    reports.forEach((place, report) -> copies.put(place, report.copy()));
    return new ErrorChannel(copies, folder);
  }

  @Override
  public synchronized void reset() {
    reports.clear();
    mine = null;
  }

  /** A report may be large, and a partial one is useless. */
  @Override
  public boolean excludeFromHeartbeat() {
    return true;
  }

  /** The number of rows in the reports. */
  @Override
  public synchronized Long value() {
    return reports.values().stream()
        .mapToLong(r -> r.rows.size() + r.files.stream().mapToLong(Part::rows).sum())
        .sum();
  }
}
