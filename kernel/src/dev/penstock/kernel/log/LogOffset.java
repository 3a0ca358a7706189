package dev.penstock.kernel.log;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.read.streaming.Offset;

/**
 * The position of a job in the log: it has read everything up to {@code lsn}, and {@code time} is the event time there. It is written to Spark's offset
 * log, so that a replayed epoch has the same rows and watermarks. {@code markers} are the entries without rows, of the epoch that ends
 * here, that moved the time; the log keeps only the newest of consecutive ones. {@code beat} makes an offset differ from the
 * previous one when an epoch without rows is needed. {@code roster} is the newest slot of a shared job that has started; the epoch includes all members up to
 * it (see {@link Roster}).
 */
final class LogOffset extends Offset {
  private static final ObjectMapper JSON = new ObjectMapper();

  final long lsn;
  final JobTime time;
  final List<Marker> markers;
  final long beat;
  final int roster;

  /** An entry without rows. */
  record Marker(long lsn, int object, LogIndex.Mark mark) {}

  LogOffset(long lsn, JobTime time, List<Marker> markers, long beat, int roster) {
    this.lsn = lsn;
    this.time = time;
    this.markers = markers;
    this.beat = beat;
    this.roster = roster;
  }

  static LogOffset parse(String json, JobTime.Followed[] followed) {
    try {
      JsonNode n = JSON.readTree(json);
      List<Marker> markers = new ArrayList<>();
      for (JsonNode m : n.get("markers")) {
        LogIndex.Mark mark = new LogIndex.Mark(m.get(2).asLong(), m.get(3).asBoolean());
        markers.add(new Marker(m.get(0).asLong(), m.get(1).asInt(), mark));
      }
      return new LogOffset(
          n.get("lsn").asLong(), JobTime.read(followed, n), markers, n.get("beat").asLong(), n.path("roster").asInt());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** The same with a later watermark. */
  LogOffset at(long watermark) {
    return new LogOffset(lsn, time.at(watermark), markers, beat, roster);
  }

  /** The job's watermark (epoch ms), {@link JobTime#NONE} if there is none yet. */
  long wm() {
    return time.watermark;
  }

  @Override
  public String json() {
    ObjectNode n = JSON.createObjectNode();
    n.put("lsn", lsn);
    time.write(n);
    ArrayNode list = n.putArray("markers");
    markers.forEach(m -> list.addArray().add(m.lsn).add(m.object).add(m.mark.watermark()).add(m.mark.idle()));
    n.put("beat", beat);
    if (roster > 0) {
      n.put("roster", roster);
    }
    return n.toString();
  }
}
