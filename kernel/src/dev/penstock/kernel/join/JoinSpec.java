package dev.penstock.kernel.join;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;

/** The specification of a join, read from JSON. Unknown fields are refused. */
final class JoinSpec {
  private final JsonNode json;
  private final Set<String> asked = new HashSet<>();

  final List<String> leftKeys;
  final List<String> rightKeys;
  final List<String> leftColumns;
  final List<String> rightColumns;
  final String leftWeight;
  final String rightWeight;
  /** Whether late rows of both sides have their moments. */
  final boolean moments;
  final List<String> leftMoment;
  final List<String> rightMoment;
  /** The id of its state counter; 0: none. */
  final long size;
  /** Whether the join's query shares its job. */
  final boolean hosted;
  /** Its number in the query. */
  final int operator;
  /** Whether all rows come in one epoch, so that no state is kept. */
  final boolean atOnce;

  JoinSpec(String text) {
    try {
      json = new ObjectMapper().readTree(text);
    } catch (com.fasterxml.jackson.core.JsonProcessingException e) {
      throw new IllegalArgumentException("the join specification is not JSON", e);
    }
    leftKeys = names("leftKeys");
    rightKeys = names("rightKeys");
    leftColumns = names("leftColumns");
    rightColumns = names("rightColumns");
    leftWeight = text("leftWeight");
    rightWeight = text("rightWeight");
    leftMoment = names("leftMoment");
    rightMoment = names("rightMoment");
    moments = !leftMoment.isEmpty() && !rightMoment.isEmpty();
    Long counter = number("size");
    size = counter == null ? 0 : counter;
    hosted = flag("hosted");
    operator = hosted ? (int) required("operator") : 0;
    atOnce = flag("atOnce");
    if (leftKeys.size() != rightKeys.size()) {
      throw new IllegalArgumentException("leftKeys and rightKeys differ in length");
    }
  }

  private JsonNode get(String field) {
    asked.add(field);
    JsonNode value = json.get(field);
    return value == null || value.isNull() ? null : value;
  }

  /** A part that another class reads, or null. */
  JsonNode part(String field) {
    return get(field);
  }

  /** A text, or null. */
  String text(String field) {
    JsonNode value = get(field);
    return value == null ? null : value.asText();
  }

  /** A text that must be one of {@code allowed}. */
  String oneOf(String field, String... allowed) {
    String value = text(field);
    if (value == null || !List.of(allowed).contains(value)) {
      throw new IllegalArgumentException(field + " must be one of " + List.of(allowed) + ", not " + value);
    }
    return value;
  }

  /** A number, or null. */
  Long number(String field) {
    JsonNode value = get(field);
    if (value != null && !value.isIntegralNumber()) {
      throw new IllegalArgumentException(field + " must be an integer");
    }
    return value == null ? null : value.longValue();
  }

  /** A mandatory number. */
  long required(String field) {
    Long value = number(field);
    if (value == null) {
      throw new IllegalArgumentException(field + " is missing");
    }
    return value;
  }

  /** A flag; false if missing. */
  boolean flag(String field) {
    JsonNode value = get(field);
    return value != null && value.asBoolean();
  }

  /** A list of names; empty if missing. */
  List<String> names(String field) {
    List<String> list = new ArrayList<>();
    JsonNode value = get(field);
    if (value != null) {
      value.forEach(item -> list.add(item.asText()));
    }
    return list;
  }

  /** A mandatory list of numbers. */
  long[] numbers(String field) {
    JsonNode value = get(field);
    if (value == null || value.isEmpty()) {
      throw new IllegalArgumentException(field + " is missing");
    }
    long[] list = new long[value.size()];
    for (int i = 0; i < list.length; i++) {
      list[i] = value.get(i).longValue();
    }
    return list;
  }

  /** Which keys compare with {@code <=>}; none if missing. */
  boolean[] nullSafe() {
    JsonNode value = get("nullSafe");
    boolean[] flags = new boolean[leftKeys.size()];
    if (value != null) {
      if (value.size() != flags.length && !value.isEmpty()) {
        throw new IllegalArgumentException("nullSafe and leftKeys differ in length");
      }
      for (int i = 0; i < value.size(); i++) {
        flags[i] = value.get(i).asBoolean();
      }
    }
    return flags;
  }

  /** Call it after reading all fields: throws if the specification has others. */
  void done() {
    Iterator<String> fields = json.fieldNames();
    while (fields.hasNext()) {
      String field = fields.next();
      if (!asked.contains(field)) {
        throw new IllegalArgumentException("the join does not know the field " + field);
      }
    }
  }
}
