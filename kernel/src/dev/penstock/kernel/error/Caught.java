package dev.penstock.kernel.error;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** The value of an expression, or its error: a struct of both, one of which is NULL. */
final class Caught extends OfOne {
  private static final long serialVersionUID = 1L;
  static final String VALUE = "__value";
  static final String ERROR = "__error";

  Caught(Expression child) {
    super(child);
  }

  @Override
  public Object eval(InternalRow input) {
    Object value = null;
    UTF8String error = null;
    try {
      value = child.eval(input);
    } catch (Exception e) {
      error = UTF8String.fromString(ErrorText.of(e));
    }
    return new GenericInternalRow(new Object[] {value, error});
  }

  @Override
  public DataType dataType() {
    return new StructType().add(VALUE, child.dataType(), true).add(ERROR, DataTypes.StringType, true);
  }

  @Override
  public boolean nullable() {
    return false;
  }

  @Override
  Expression over(Expression other) {
    return new Caught(other);
  }
}
