package dev.penstock.kernel.state;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.catalyst.analysis.Analyzer;
import org.apache.spark.sql.catalyst.encoders.AgnosticEncoder;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import scala.collection.immutable.Seq;

/**
 * A state encoder that is resolved once per process. Spark runs its analyser for every variable of every stateful task of every epoch,
 * which takes longer than processing the task's rows if there are few.
 */
final class KnownEncoder<T> extends ExpressionEncoder<T> {
  private static final long serialVersionUID = 1L;
  private static final int MOST = 1_000;
  private static final Map<AgnosticEncoder<?>, KnownEncoder<?>> ALL = new ConcurrentHashMap<>();

  private transient volatile ExpressionEncoder<T> resolved;

  private KnownEncoder(ExpressionEncoder<T> encoder) {
    super(encoder.encoder(), encoder.objSerializer(), encoder.objDeserializer());
  }

  /** The encoder for values of this type; encoders other than Spark's own are returned unchanged. */
  @SuppressWarnings("unchecked")
  static <T> Encoder<T> of(Encoder<T> encoder) {
    if (!(encoder instanceof AgnosticEncoder<T> type)) {
      return encoder;
    }
    if (ALL.size() > MOST) {
      ALL.clear();
    }
    return (Encoder<T>) ALL.computeIfAbsent(type, t -> new KnownEncoder<>(ExpressionEncoder.apply((AgnosticEncoder<T>) t)));
  }

  /** Always called with the columns of the encoder's own schema. */
  @Override
  public ExpressionEncoder<T> resolveAndBind(Seq<Attribute> columns, Analyzer analyzer) {
    if (resolved == null) {
      resolved = super.resolveAndBind(columns, analyzer);
    }
    return resolved;
  }
}
