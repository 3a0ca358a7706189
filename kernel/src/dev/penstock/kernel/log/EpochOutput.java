package dev.penstock.kernel.log;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.penstock.kernel.error.ErrorChannel;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Passes the tasks' output of an epoch to the job's {@link Outbox} and waits until Python has recorded it. Returns the last commit of the log at that time, or 0 if there was nothing to record. */
final class EpochOutput {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final EpochClock clock;
  private final Outbox outbox;
  private final ErrorChannel errors;

  /** @param errors null if no row of the job can fail */
  EpochOutput(String job, ErrorChannel errors) {
    clock = EpochClock.of(job);
    outbox = Outbox.of(job);
    this.errors = errors;
  }

  EpochClock clock() {
    return clock;
  }

  long deliver(long epoch, List<Written> tasks) throws IOException, InterruptedException {
    long rows = 0;
    ObjectNode head = JSON.createObjectNode();
    ArrayNode parts = head.putArray("parts");
    ByteArrayOutputStream body = new ByteArrayOutputStream();
    for (Written task : tasks) {
      for (EpochPart p : task.parts) {
        rows += p.rows();
        p.describe(parts.addObject(), body);
      }
    }
    List<ErrorChannel.Part> failed = errors == null ? List.of() : errors.drain(epoch);
    failed.forEach(part -> describe(part, head.withArray("errors").addObject(), body));
    Map<Integer, Long> late = new TreeMap<>();
    tasks.forEach(task -> task.late.forEach((slot, number) -> late.merge(slot, number, Long::sum)));
    boolean large = clock.settleState(epoch);
    EpochClock.Reach reach = clock.reach();
    double age = clock.age();
    long recorded = 0;
    if (rows > 0 || !failed.isEmpty() || !late.isEmpty() || reach.news() || large) {
      head.put("epoch", epoch);
      head.put("wm", reach.watermark());
      head.put("idle", reach.idle());
      head.put("after", reach.after());
      head.put("lsn", reach.lsn());
      head.put("beat", reach.beat());
      head.put("roster", reach.roster());
      head.put("ms", age);
      late.forEach((slot, number) -> head.withObject("late").put(slot.toString(), number));
      recorded = outbox.deliver(packet(head, body));
    }
    clock.recorded();
    return recorded;
  }

  private static byte[] packet(ObjectNode head, ByteArrayOutputStream body) throws IOException {
    byte[] json = JSON.writeValueAsBytes(head);
    ByteArrayOutputStream out = new ByteArrayOutputStream(json.length + body.size() + 12);
    DataOutputStream data = new DataOutputStream(out);
    // Padding after the JSON keeps Arrow's buffers aligned.
    int padding = -(json.length + 4) & 7;
    data.writeInt(json.length + padding);
    data.write(json);
    for (int i = 0; i < padding; i++) {
      data.write(' ');
    }
    body.writeTo(data);
    return out.toByteArray();
  }

  private static void describe(ErrorChannel.Part part, ObjectNode to, ByteArrayOutputStream body) {
    to.put("query", part.query());
    if (part.path() != null) {
      to.put("path", part.path());
    } else {
      to.put("at", body.size());
      to.put("length", part.bytes().length);
      body.writeBytes(part.bytes());
    }
  }
}
