package dev.penstock.kernel.hosted;

import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.executor.TaskMetrics$;
import org.apache.spark.memory.TaskMemoryManager;
import org.apache.spark.sql.SparkSession;
import scala.Option;
import scala.math.BigDecimal;

/**
 * Runs tasks in the driver when it is the only executor. They need no Spark job: planning, serialising, scheduling and reporting one takes longer than the tasks of a small epoch.
 *
 * <p>Tasks run in the same process as Spark's would, at most as many at a time. A task has the context that it would have in Spark.
 */
final class DriverTasks {
  /** Counts down: Spark numbers its own tasks from 0 up. */
  private static final AtomicLong NEXT = new AtomicLong();
  private static ExecutorService threads;

  private final SparkContext spark;

  DriverTasks(SparkContext spark, int parallelism) {
    this.spark = spark;
    begin(parallelism);
  }

  private static synchronized void begin(int parallelism) {
    if (threads == null) {
      threads = Executors.newFixedThreadPool(Math.max(1, parallelism), work -> {
        Thread thread = new Thread(() -> {
          // Inherited from the thread that started this one; tasks take their settings from their context.
          SparkSession.clearActiveSession();
          work.run();
        }, "penstock-task");
        thread.setDaemon(true);
        return thread;
      });
    }
  }

  /** Runs all tasks and passes their results to {@code take}, even if one fails. No task is running when this returns or throws. */
  <T> void run(List<Callable<T>> tasks, Consumer<T> take) throws Exception {
    Properties properties = spark.getLocalProperties();
    List<TaskContextImpl> contexts = new ArrayList<>();
    List<Future<T>> futures = new ArrayList<>();
    for (Callable<T> task : tasks) {
      TaskContextImpl context = context(contexts.size(), tasks.size(), properties);
      contexts.add(context);
      futures.add(threads.submit(() -> run(task, context)));
    }
    Throwable failure = null;
    for (int i = 0; i < futures.size(); ) {
      try {
        take.accept(futures.get(i).get());
        i++;
      } catch (InterruptedException e) {
        failure = e;
        contexts.forEach(context -> context.markInterrupted("the job is stopped"));
      } catch (ExecutionException e) {
        failure = failure == null ? e.getCause() : failure;
        i++;
      }
    }
    if (failure instanceof Error error) {
      throw error;
    } else if (failure != null) {
      throw (Exception) failure;
    }
  }

  private static <T> T run(Callable<T> task, TaskContextImpl context) throws Exception {
    TaskContext$.MODULE$.setTaskContext(context);
    Option<Throwable> failure = Option.empty();
    try {
      return task.call();
    } catch (Throwable e) {
      failure = Option.apply(e);
      context.markTaskFailed(e);
      throw e;
    } finally {
      try {
        context.markTaskCompleted(failure);
      } finally {
        context.taskMemoryManager().cleanUpAllAllocatedMemory();
        TaskContext$.MODULE$.unset();
      }
    }
  }

  private static TaskContextImpl context(int index, int count, Properties properties) {
    long number = NEXT.decrementAndGet();
    return new TaskContextImpl(
        -1, 0, index, number, 0, count, new TaskMemoryManager(SparkEnv.get().memoryManager(), number), properties, null,
        TaskMetrics$.MODULE$.empty(), BigDecimal.valueOf(1), scala.collection.immutable.Map$.MODULE$.empty());
  }
}
