package dev.penstock.kernel.log;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Passes the finished epochs of one job to Python, one at a time. {@link #deliver} returns when Python has recorded the epoch, so
 * Spark never commits an epoch whose output is not in the log.
 */
public final class Outbox {
  private static final Map<String, Outbox> ALL = new ConcurrentHashMap<>();

  private byte[] waiting;
  private boolean taken;
  private boolean done;
  private long recorded;
  private String failure;
  private boolean closed;

  private Outbox() {}

  public static Outbox create(String job) {
    Outbox box = new Outbox();
    ALL.put(job, box);
    return box;
  }

  static Outbox of(String job) {
    Outbox box = ALL.get(job);
    if (box == null) {
      throw new IllegalStateException("no outbox for job " + job);
    }
    return box;
  }

  public static void drop(String job) {
    Outbox box = ALL.remove(job);
    if (box != null) {
      box.close();
    }
  }

  /** Waits until the epoch is recorded; returns the last commit of the log at that time. */
  synchronized long deliver(byte[] epoch) throws InterruptedException {
    if (closed) {
      throw new InterruptedException("the job is closed");
    }
    waiting = epoch;
    taken = false;
    done = false;
    failure = null;
    notifyAll();
    while (!done && !closed) {
      wait();
    }
    waiting = null;
    if (closed && !done) {
      throw new InterruptedException("the job is closed");
    }
    if (failure != null) {
      throw new IllegalStateException(failure);
    }
    return recorded;
  }

  /** Acknowledges the previous epoch, if {@code lsn} is the last commit of the log and not -1, and waits for the next one; null after the timeout. */
  public synchronized byte[] take(long lsn, long timeoutMs) throws InterruptedException {
    if (lsn >= 0) {
      done = true;
      recorded = lsn;
      waiting = null;
      notifyAll();
    }
    Deadline deadline = Deadline.in(timeoutMs);
    while ((waiting == null || taken) && !closed) {
      long wait = deadline.left();
      if (wait <= 0) {
        return null;
      }
      wait(wait);
    }
    if (closed) {
      return null;
    }
    taken = true;
    return waiting;
  }

  /** Fails the job with this message, because the epoch could not be recorded. */
  public synchronized void refuse(String message) {
    failure = message;
    done = true;
    notifyAll();
  }

  public synchronized void close() {
    closed = true;
    notifyAll();
  }
}
