package dev.penstock.kernel.error;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.StructType;

/**
 * Finds which expression of an {@link Attempt} fails for a row, and reports it.
 *
 * <p>It evaluates the expressions again, one by one and without generated code. So the report of a row does not depend on the code
 * that failed, and the report of its retraction cancels that of its insertion.
 */
public final class Failures implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final String WEIGHT = "__weight";

  private final Attempt attempt;
  private final Expression condition;
  private final ArrayList<Expression> columns;
  private final RowText text;
  private final int weightAt;

  Failures(Attempt attempt, Expression condition, List<Expression> columns, List<Attribute> input) {
    this.attempt = attempt;
    this.condition = condition;
    this.columns = new ArrayList<>(columns);
    StructType schema = new StructType();
    int at = -1;
    for (int i = 0; i < input.size(); i++) {
      schema = schema.add(input.get(i).name(), input.get(i).dataType(), true);
      at = input.get(i).name().equals(WEIGHT) ? i : at;
    }
    weightAt = at;
    text = new RowText(schema, attempt.names);
  }

  /** Reports a failed row, given by its values in Spark's internal form. */
  public void report(Exception error, Object[] values) {
    report(error, new GenericInternalRow(values));
  }

  void report(Exception error, InternalRow row) {
    if (!attempt.reports()) {
      return;
    }
    String told = ErrorText.of(error);
    String where = attempt.texts.get(0);
    for (int i = 0; i <= columns.size(); i++) {
      String failed = failed(i == 0 ? condition : columns.get(i - 1), row);
      if (failed != null) {
        told = failed;
        where = attempt.texts.get(i);
        break;
      }
    }
    long weight = weightAt < 0 ? 1 : row.getLong(weightAt);
    attempt.report(where, told, text.of(row), weight);
  }

  /** The error of an expression that fails for a row; null if it does not fail or is non-deterministic. */
  private static String failed(Expression e, InternalRow row) {
    if (!e.deterministic()) {
      return null;
    }
    try {
      e.eval(row);
      return null;
    } catch (Exception error) {
      return ErrorText.of(error);
    }
  }
}
