package dev.penstock.kernel.error;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.types.DataType;

/**
 * A stateful expression that can fail. In Spark a failure ends the task; here processing continues with the next row, which needs a fresh copy. For example, a map
 * with a duplicate key would leave its keys to the map of the next row.
 */
final class Renewed extends OfOne implements Fallible.Failing {
  private static final long serialVersionUID = 1L;

  private transient Expression current;

  Renewed(Expression child) {
    super(child);
  }

  @Override
  public Object eval(InternalRow input) {
    if (current == null) {
      current = (Expression) child.clone();
    }
    Expression used = current;
    current = null;
    Object value = used.eval(input);
    current = used;
    return value;
  }

  @Override
  public DataType dataType() {
    return child.dataType();
  }

  @Override
  public boolean nullable() {
    return child.nullable();
  }

  /** Spark gives every projection its own copy. */
  @Override
  public boolean stateful() {
    return true;
  }

  @Override
  Expression over(Expression other) {
    return new Renewed(other);
  }
}
