package dev.penstock.kernel.log;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.Serializable;

/**
 * What one task wrote for one output in one epoch: Arrow messages, inline ({@code bytes}) or in a file ({@code path}). {@code before} is the watermark
 * that was in force for the rows if they are behind it, otherwise {@link JobTime#NONE}.
 */
final class EpochPart implements Serializable {
  private static final long serialVersionUID = 1L;

  final int output;
  final long before;
  final String path;
  final byte[] bytes;
  final long[][] messages;

  EpochPart(int output, long before, String path, byte[] bytes, long[][] messages) {
    this.output = output;
    this.before = before;
    this.path = path;
    this.bytes = bytes;
    this.messages = messages;
  }

  long rows() {
    long n = 0;
    for (long[] m : messages) {
      n += m[2];
    }
    return n;
  }

  /** Adds this part to an epoch's header, and inline bytes to the body. Offsets are relative to the start of the part. */
  void describe(ObjectNode to, ByteArrayOutputStream body) {
    to.put("output", output);
    to.put("before", before);
    to.put("rows", rows());
    if (path == null) {
      to.put("at", body.size());
      to.put("length", bytes.length);
      body.write(bytes, 0, bytes.length);
    } else {
      to.put("path", path);
    }
    ArrayNode list = to.putArray("messages");
    for (long[] m : messages) {
      ArrayNode one = list.addArray();
      one.add(m[0]);
      one.add(m[1]);
      one.add(m[2]);
    }
  }
}
