package dev.penstock.kernel.error;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * A filter and projection applied to a row: if the condition or a column fails, the query does not
 * get the row, and the row is reported.
 *
 * <p>Spec: {@code channel} (the number of the job's {@link ErrorChannel}; missing: rows that fail are dropped silently), {@code
 * member} (true in a query that shares a job: its errors go through {@link MemberErrors}), {@code names} (user-visible names of the
 * input columns that are reported, in order), {@code texts} (of the columns' expressions, in order; null for those that cannot fail),
 * {@code condition} (its text).
 */
final class Attempt implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final ObjectMapper JSON = new ObjectMapper();

  private final ErrorChannel channel;
  private final boolean member;
  final LinkedHashMap<String, String> names = new LinkedHashMap<>();
  /** The text of the condition, then those of the columns. */
  final ArrayList<String> texts = new ArrayList<>();

  Attempt(JsonNode spec) {
    channel = spec.hasNonNull("channel") ? ErrorChannel.of(spec.get("channel").asLong()) : null;
    member = spec.path("member").asBoolean();
    for (Map.Entry<String, JsonNode> name : spec.path("names").properties()) {
      names.put(name.getKey(), name.getValue().asText());
    }
    texts.add(spec.path("condition").asText(""));
    spec.path("texts").forEach(text -> texts.add(text.asText("")));
  }

  /** Whether rows that fail are reported. */
  boolean reports() {
    return channel != null || member;
  }

  /** Reports that an expression has failed for a row. */
  void report(String expression, String error, String row, long weight) {
    if (member) {
      MemberErrors.report(expression, error, row, weight);
    } else if (channel != null) {
      channel.report(0, expression, error, row, weight);
    }
  }

  static Attempt of(String json) {
    try {
      return new Attempt(JSON.readTree(json));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  @Override
  public String toString() {
    return "attempt";
  }
}
