package dev.penstock.kernel.log;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import java.util.Map;

/**
 * The event time of one job at an LSN: the job's watermark, and the watermark and idle flag of each object that it follows.
 * It is a pure function of the log up to that LSN, and part of the {@link LogOffset}, so a replay starts from the same time.
 *
 * <p>The job's watermark is the smallest over the objects that are not idle, each minus its lag; if all are idle, the largest. It does not move while an
 * object that is not idle has no watermark. It never goes back.
 */
final class JobTime {
  static final long NONE = Long.MIN_VALUE;

  /** An object that a job follows, {@code lagMs} behind. */
  record Followed(int object, long lagMs) {}

  private final Followed[] followed;
  private final long[] marks;
  private final boolean[] idle;
  final long watermark;

  private JobTime(Followed[] followed, long[] marks, boolean[] idle, long floor) {
    this.followed = followed;
    this.marks = marks;
    this.idle = idle;
    this.watermark = Math.max(floor, combined(followed, marks, idle));
  }

  /** The time of a job that starts after {@code lsn}. */
  static JobTime at(Followed[] followed, LogIndex index, long lsn) {
    long[] marks = new long[followed.length];
    boolean[] idle = new boolean[followed.length];
    for (int i = 0; i < followed.length; i++) {
      LogIndex.Mark mark = index.markAt(followed[i].object, lsn);
      marks[i] = mark.watermark();
      idle[i] = mark.idle();
    }
    return new JobTime(followed, marks, idle, NONE);
  }

  /** The time after one more commit, given as the marks of its objects. */
  JobTime after(Map<Integer, LogIndex.Mark> commit) {
    long[] newMarks = marks.clone();
    boolean[] newIdle = idle.clone();
    for (int i = 0; i < followed.length; i++) {
      LogIndex.Mark mark = commit.get(followed[i].object);
      if (mark != null) {
        newMarks[i] = Math.max(marks[i], mark.watermark());
        newIdle[i] = mark.idle();
      }
    }
    boolean same = Arrays.equals(marks, newMarks) && Arrays.equals(idle, newIdle);
    return same ? this : new JobTime(followed, newMarks, newIdle, watermark);
  }

  /** The same objects at a later watermark. */
  JobTime at(long later) {
    return new JobTime(followed, marks, idle, later);
  }

  /** What the job's watermark would be if an object were not idle and had a watermark of at least {@code mark}. */
  long watermarkIf(int object, long mark) {
    return after(Map.of(object, new LogIndex.Mark(mark, false))).watermark;
  }

  /** Whether the job follows objects, and all of them are idle. */
  boolean idle() {
    for (boolean one : idle) {
      if (!one) {
        return false;
      }
    }
    return idle.length > 0;
  }

  private static long combined(Followed[] followed, long[] marks, boolean[] idle) {
    long smallest = Long.MAX_VALUE;
    long largest = NONE;
    for (int i = 0; i < followed.length; i++) {
      long behind = marks[i] == NONE ? NONE : marks[i] - followed[i].lagMs;
      largest = Math.max(largest, behind);
      if (!idle[i]) {
        smallest = Math.min(smallest, behind);
      }
    }
    return smallest == Long.MAX_VALUE ? largest : smallest;
  }

  /** Adds this to the JSON of an offset. */
  void write(ObjectNode to) {
    to.put("wm", watermark);
    ObjectNode times = to.putObject("marks");
    for (int i = 0; i < followed.length; i++) {
      times.putArray(Integer.toString(followed[i].object)).add(marks[i]).add(idle[i]);
    }
  }

  /** Reads what {@link #write} has written. */
  static JobTime read(Followed[] followed, JsonNode from) {
    long[] marks = new long[followed.length];
    boolean[] idle = new boolean[followed.length];
    Arrays.fill(marks, NONE);
    for (int i = 0; i < followed.length; i++) {
      JsonNode mark = from.path("marks").path(Integer.toString(followed[i].object));
      if (mark.isArray()) {
        marks[i] = mark.get(0).asLong();
        idle[i] = mark.get(1).asBoolean();
      }
    }
    return new JobTime(followed, marks, idle, from.get("wm").asLong());
  }
}
