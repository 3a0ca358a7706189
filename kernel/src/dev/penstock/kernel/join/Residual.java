package dev.penstock.kernel.join;

import com.fasterxml.jackson.databind.JsonNode;
import dev.penstock.kernel.error.PairErrors;
import dev.penstock.kernel.row.PairPredicate;
import java.io.Serializable;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.StructType;

/** The part of a join's ON that is not an equality. A pair for which it fails is not a match, and is reported with the weight that its result would have. */
final class Residual implements Serializable {
  private static final long serialVersionUID = 1L;

  private final PairPredicate predicate;
  private final PairErrors errors;
  private final String text;

  private Residual(PairPredicate predicate, PairErrors errors, String text) {
    this.predicate = predicate;
    this.errors = errors;
    this.text = text;
  }

  /**
   * The residual {@code sql}; null if there is none.
   *
   * @param failing a {@link PairErrors} with the user-visible {@code expression}, or null if the residual cannot fail
   */
  static Residual of(SparkSession spark, String sql, JsonNode failing, StructType left, StructType right) {
    return sql == null ? null : new Residual(
        PairPredicate.of(spark, sql, left, right), PairErrors.of(failing, left, right),
        failing == null ? sql : failing.path("expression").asText());
  }

  /** Whether two packed rows match; {@code weight} is that of the pair. */
  boolean matches(byte[] left, byte[] right, long weight) {
    if (errors == null) {
      return predicate.test(left, right);
    }
    try {
      return predicate.test(left, right);
    } catch (Exception e) {
      errors.report(text, e, left, right, weight);
      return false;
    }
  }
}
