package dev.penstock.kernel.error;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** The value that a Python function has returned; fails if it has returned an error, see {@link PythonFunctions}. */
final class PythonResult extends OfOne implements Fallible.Failing {
  private static final long serialVersionUID = 1L;

  PythonResult(Expression child) {
    super(child);
  }

  @Override
  public Object eval(InternalRow input) {
    InternalRow pair = (InternalRow) child.eval(input);
    if (pair == null) {
      return null;
    }
    if (!pair.isNullAt(1)) {
      throw new IllegalStateException(pair.getUTF8String(1).toString());
    }
    return pair.isNullAt(0) ? null : pair.get(0, dataType());
  }

  @Override
  public DataType dataType() {
    return ((StructType) child.dataType()).apply(0).dataType();
  }

  @Override
  public boolean nullable() {
    return true;
  }

  @Override
  Expression over(Expression other) {
    return new PythonResult(other);
  }
}
