package dev.penstock.kernel.log;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.sql.connector.read.streaming.Offset;

/**
 * How far a job has read: everything up to {@code lsn} is in, and the job's watermark is {@code wm} (epoch ms). It is written to
 * Spark's offset log, so that a replayed epoch has the same rows and the same watermark. {@code beat} only makes an offset differ
 * from the previous one when an epoch without rows is wanted.
 */
final class LogOffset extends Offset {
  static final long NO_WATERMARK = Long.MIN_VALUE;

  private static final ObjectMapper JSON = new ObjectMapper();

  final long lsn;
  final long wm;
  final long beat;

  LogOffset(long lsn, long wm, long beat) {
    this.lsn = lsn;
    this.wm = wm;
    this.beat = beat;
  }

  static LogOffset parse(String json) {
    try {
      JsonNode n = JSON.readTree(json);
      return new LogOffset(n.get("lsn").asLong(), n.get("wm").asLong(), n.get("beat").asLong());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  @Override
  public String json() {
    return "{\"lsn\":" + lsn + ",\"wm\":" + wm + ",\"beat\":" + beat + "}";
  }
}
