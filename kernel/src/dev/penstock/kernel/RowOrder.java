package dev.penstock.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import dev.penstock.kernel.OrderKey.Field;
import dev.penstock.kernel.OrderKey.Key;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * A total order of whole rows: by an ORDER BY list, then by the remaining columns.
 *
 * <p>The key of a row holds the whole row, so that it identifies the row; values that a key does not give back as a Row
 * holds them (nested and rare types) are kept beside it as the payload.
 */
final class RowOrder implements Serializable {
  private static final long serialVersionUID = 1L;

  final OrderKey order;
  private final OrderKey leading;
  private final int[] ordinals; // of the row, in key order
  private final int[] leadingOrdinals;
  private final int[] payload; // ordinals of the row that are kept beside the key
  private final StructType payloadSchema;

  private RowOrder(List<Field> fields, int[] ordinals, int leadingCount, int[] payload, StructType row) {
    this.order = OrderKey.of(fields);
    this.leading = OrderKey.of(fields.subList(0, leadingCount));
    this.ordinals = ordinals;
    this.leadingOrdinals = java.util.Arrays.copyOf(ordinals, leadingCount);
    this.payload = payload;
    StructType s = new StructType();
    for (int p : payload) {
      s = s.add("p" + p, row.apply(p).dataType(), true);
    }
    this.payloadSchema = s;
  }

  /**
   * The order of a specification's {@code order} list over rows of this schema.
   *
   * @param reverse turn everything round, so that the last row comes first
   */
  static RowOrder of(JsonNode orderSpec, PhysicalRow row, boolean reverse) {
    List<Field> fields = new ArrayList<>();
    List<Integer> ordinals = new ArrayList<>();
    if (orderSpec != null) {
      for (JsonNode o : orderSpec) {
        int i = row.indexOf(o.get("col").asText());
        if (!ordinals.contains(i)) {
          boolean desc = o.path("desc").asBoolean(false);
          boolean nullsFirst = o.path("nullsFirst").asBoolean(!desc);
          fields.add(new Field(row.inner.apply(i).dataType(), desc ^ reverse, nullsFirst ^ reverse));
          ordinals.add(i);
        }
      }
    }
    int leading = fields.size();
    List<Integer> payload = new ArrayList<>();
    for (int i = 0; i < row.size(); i++) {
      DataType t = row.inner.apply(i).dataType();
      if (!ordinals.contains(i)) {
        fields.add(new Field(t, reverse, !reverse));
        ordinals.add(i);
      }
      if (!PhysicalRow.decodable(t)) {
        payload.add(i);
      }
    }
    return new RowOrder(
        fields,
        ordinals.stream().mapToInt(Integer::intValue).toArray(),
        leading,
        payload.stream().mapToInt(Integer::intValue).toArray(),
        row.inner);
  }

  /** The key of a row. */
  Key key(Row row) {
    return order.encodeAt(row, ordinals);
  }

  /** The bytes of the ORDER BY columns alone: a prefix of the row's key, equal exactly for peers. */
  byte[] peer(Row row) {
    return leading.encodeAt(row, leadingOrdinals).bytes();
  }

  /** The columns kept beside the key. */
  StructType payloadSchema() {
    return payloadSchema;
  }

  int payloadSize() {
    return payload.length;
  }

  /** Copies the payload of a row into {@code to}, from position 0 on. */
  void savePayload(Row row, Object[] to) {
    for (int i = 0; i < payload.length; i++) {
      to[i] = row.get(payload[i]);
    }
  }

  /** The row's values from its key and the payload that stands at the start of {@code kept}. */
  Object[] values(Key key, Row kept) {
    Object[] decoded = order.decode(key);
    Object[] values = new Object[ordinals.length];
    for (int i = 0; i < ordinals.length; i++) {
      values[ordinals[i]] = decoded[i];
    }
    for (int i = 0; i < payload.length; i++) {
      values[payload[i]] = kept.get(i);
    }
    return values;
  }
}
