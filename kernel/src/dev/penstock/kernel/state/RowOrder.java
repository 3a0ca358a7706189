package dev.penstock.kernel.state;

import com.fasterxml.jackson.databind.JsonNode;
import dev.penstock.kernel.row.PhysicalRow;
import dev.penstock.kernel.state.OrderKey.Field;
import dev.penstock.kernel.state.OrderKey.Key;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.Row;

/**
 * A total order of whole rows: by an ORDER BY list, then by the remaining columns.
 *
 * <p>The key of a row contains the whole row, so it identifies the row and decodes to it.
 */
public final class RowOrder implements Serializable {
  private static final long serialVersionUID = 1L;

  public final OrderKey order;
  private final OrderKey leading;
  private final int[] ordinals; // of the row, in key order
  private final int[] leadingOrdinals;

  private RowOrder(List<Field> fields, int[] ordinals, int leadingCount) {
    this.order = OrderKey.of(fields);
    this.leading = OrderKey.of(fields.subList(0, leadingCount));
    this.ordinals = ordinals;
    this.leadingOrdinals = Arrays.copyOf(ordinals, leadingCount);
  }

  /**
   * The order of a specification's {@code order} list over rows of this schema.
   *
   * @param reverse reverses the order, so that the last row comes first
   */
  public static RowOrder of(JsonNode orderSpec, PhysicalRow row, boolean reverse) {
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
    for (int i = 0; i < row.size(); i++) {
      if (!ordinals.contains(i)) {
        fields.add(new Field(row.inner.apply(i).dataType(), reverse, !reverse));
        ordinals.add(i);
      }
    }
    return new RowOrder(fields, ordinals.stream().mapToInt(Integer::intValue).toArray(), leading);
  }

  /** The key of a row. */
  public Key key(Row row) {
    return order.encodeAt(row, ordinals);
  }

  /** The key of a row from its bytes. */
  public Key key(byte[] bytes) {
    return order.encode(order.decode(bytes));
  }

  /** The complete key of a row, as bytes only. */
  public byte[] bytes(Row row) {
    return order.bytesAt(row, ordinals);
  }

  /** The bytes of the ORDER BY columns only: a prefix of the row's key, equal for peers and only for them. */
  public byte[] peer(Object[] values) {
    Object[] of = new Object[leadingOrdinals.length];
    for (int i = 0; i < of.length; i++) {
      of[i] = values[leadingOrdinals[i]];
    }
    return leading.encode(of).bytes();
  }

  /** The row's values from its key. */
  public Object[] values(Key key) {
    return values(key.bytes());
  }

  /** The row's values from its complete key. */
  public Object[] values(byte[] key) {
    Object[] decoded = order.decode(key);
    Object[] values = new Object[ordinals.length];
    for (int i = 0; i < ordinals.length; i++) {
      values[ordinals[i]] = decoded[i];
    }
    return values;
  }
}
