package dev.penstock.kernel.set;

import com.fasterxml.jackson.databind.JsonNode;
import dev.penstock.kernel.row.Input;
import dev.penstock.kernel.row.Wire;
import dev.penstock.kernel.state.Keyed;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * Rows that are present for a time: while enter ≤ now &lt; exit, where now is the watermark floored to a full second.
 *
 * <p>Output: the data columns and {@code __weight}. A row is emitted with its weight when it enters and with minus its weight when it
 * leaves; a row whose exit has passed when it arrives, or that would enter and leave in the same epoch, is never emitted. A retraction
 * cancels a waiting row, or removes a present one immediately. Times are Unix milliseconds; NULL (or no column) is no bound.
 *
 * <p>Equal rows share state and have equal bounds, because bounds are computed from the row. Zeros compare as equal, as do
 * NaNs and NULLs. Order: none within an epoch.
 *
 * <p>State: weight and bounds of each distinct row that is waiting or will leave, until it leaves; none for rows that stay for ever. Before
 * the first watermark, now is the start of 1970.
 *
 * <p>Watermark in a chain: see {@code Aggregate}.
 */
public final class TemporalFilter {
  private TemporalFilter() {}

  /** Applies the filter of {@code specJson} to {@code in}. */
  public static Dataset<Row> apply(Dataset<Row> in, String specJson) {
    JsonNode spec = Input.parse(specJson);
    List<String> names = Input.texts(spec, "columns");
    String weight = Input.text(spec, "weight");
    String enter = Input.text(spec, "enter");
    String exit = Input.text(spec, "exit");
    Input input = new Input(in);
    int[] columns = names.stream().mapToInt(input::add).toArray();
    int weightAt = weight == null ? -1 : input.add(weight, DataTypes.LongType);
    int enterAt = enter == null ? -1 : input.add(enter, DataTypes.LongType);
    int exitAt = exit == null ? -1 : input.add(exit, DataTypes.LongType);

    StructType keySchema = input.keySchema(columns);
    StructType parts = keySchema
        .add("enter", DataTypes.LongType, true)
        .add("exit", DataTypes.LongType, true)
        .add("w", DataTypes.LongType, false);
    int n = keySchema.size();
    Dataset<Row> out = Keyed.leading(
            new TemporalRows(columns, weightAt, enterAt, exitAt), parts, keySchema, new TemporalFilterProcessor(n),
            keySchema.add("__weight", DataTypes.LongType, false))
        .over(input.dataset(), spec, TimeMode.EventTime());

    List<Column> named = new ArrayList<>();
    for (int i = 0; i < columns.length; i++) {
      named.add(Wire.from(out.col("k" + i), input.declared(names.get(i))).as(names.get(i)));
    }
    named.add(out.col("__weight"));
    return out.select(named.toArray(Column[]::new));
  }
}
