package dev.penstock.kernel.aggregate;

import com.fasterxml.jackson.databind.JsonNode;
import dev.penstock.kernel.row.Input;
import dev.penstock.kernel.row.Wire;
import dev.penstock.kernel.state.Keyed;
import dev.penstock.kernel.state.Moment;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * GROUP BY with a session window over a Z-set.
 *
 * <p>Sessions: per key, rows at most the gap apart (inclusive) share a session, whose bounds are the first
 * time and the last time + gap, in micros. A row between two sessions merges them; a retraction can split one. Rows with a NULL time must
 * be filtered out before.
 *
 * <p>Output: keys, start, end, aggregates, {@code __late}, {@code __row} if requested, {@code __weight}. Mode {@code changes}: the
 * rows of removed sessions with −1, then the new ones with +1; nothing for unchanged sessions. Mode
 * {@code close}: each session once, with +1, when it closes: when end + lateness ≤ watermark.
 *
 * <p>Late rows: a row is late if its session, formed with the open ones and the other rows of its commit, has closed at the watermark in
 * force when the row arrived, regardless of how commits are grouped into epochs. A closed session accepts no more rows: a row within its
 * gap whose own session would still be open starts a new one. {@code lsn} and {@code before} are the two columns of a row's {@link Moment}; for
 * rows from an operator that has none, the watermark of the epoch counts. A retraction of a row whose session has been removed is also
 * late. Late rows are emitted with {@code __late} true, their weight and {@code __row}, and NULL elsewhere; all others have {@code __late}
 * false and no {@code __row}.
 *
 * <p>Order inside a session: functions that otherwise depend on arrival (FIRST, ARRAY_AGG) order by time, then by arrival.
 * State: append-only, one accumulator per open session; otherwise one per distinct time of the open sessions. Each key is one
 * binary value, so an epoch's cost for each key that it touches is the size of the key's open sessions.
 *
 * <p>Watermark in a chain: see {@link Aggregate}.
 */
public final class Session {
  private Session() {}

  /** Applies the sessions of {@code specJson} to {@code in}. */
  public static Dataset<Row> apply(Dataset<Row> in, String specJson) {
    JsonNode spec = Input.parse(specJson);
    List<String> keyNames = Input.texts(spec, "keys");
    String weight = Input.text(spec, "weight");
    String passed = Input.text(spec, "row");
    Input input = new Input(in);
    int[] keys = keyNames.stream().mapToInt(input::add).toArray();
    int timeAt = input.add(Input.text(spec, "time"), DataTypes.LongType);
    int weightAt = weight == null ? -1 : input.add(weight, DataTypes.LongType);
    List<AggFunction> functions = AggFunction.list(spec, input, weight == null, Aggregate.ansi(in));
    String lsn = Input.text(spec, "lsn");
    int lsnAt = lsn == null ? -1 : input.add(lsn, DataTypes.LongType);
    int watermarkAt = lsn == null ? -1 : input.add(Input.text(spec, "before"), DataTypes.LongType);
    int rowAt = passed == null ? -1 : input.addRaw(passed);
    DataType rowType = passed == null ? null : input.type(rowAt);

    StructType keySchema = input.keySchema(keys);
    StructType parts = keySchema.add("t", DataTypes.LongType, false)
        .add("lsn", DataTypes.LongType, true)
        .add("before", DataTypes.LongType, true)
        .add(Aggregate.PART, DataTypes.BinaryType, false);
    StructType schema = Aggregate.results(keySchema.add("s", DataTypes.LongType).add("e", DataTypes.LongType), functions)
        .add("__late", DataTypes.BooleanType, false);
    if (passed != null) {
      parts = parts.add("r", rowType, true);
      schema = schema.add("__row", rowType, true);
    }
    schema = schema.add("__weight", DataTypes.LongType, false);

    Combiner combiner = new Combiner(keys, weightAt, functions).byTime(timeAt, rowAt).byMoment(lsnAt, watermarkAt);
    SessionProcessor processor = new SessionProcessor(
        combiner,
        functions,
        keySchema.size(),
        spec.get("gapMicros").asLong(),
        Aggregate.closes(spec),
        spec.path("latenessMs").asLong(),
        spec.path("punctual").asBoolean(),
        weight == null,
        passed != null,
        Aggregate.errors(spec, input, keyNames, Input.text(spec, "start"), Input.text(spec, "end")),
        // Users see milliseconds if the time is a number.
        spec.path("errors").path("bounds").asText().equals("bigint") ? 1000 : 1);
    Dataset<Row> out = Keyed.leading(combiner, parts, keySchema, processor, schema)
        .over(input.dataset(), spec, TimeMode.EventTime());

    List<Column> named = new ArrayList<>();
    for (int i = 0; i < keys.length; i++) {
      named.add(Wire.from(out.col("k" + i), input.declared(keyNames.get(i))).as(keyNames.get(i)));
    }
    named.add(out.col("s").as(Input.text(spec, "start")));
    named.add(out.col("e").as(Input.text(spec, "end")));
    for (int i = 0; i < functions.size(); i++) {
      named.add(Aggregate.result(out, functions, i));
    }
    named.add(out.col("__late"));
    if (passed != null) {
      named.add(out.col("__row"));
    }
    named.add(out.col("__weight"));
    return out.select(named.toArray(Column[]::new));
  }
}
