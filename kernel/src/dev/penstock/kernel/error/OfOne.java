package dev.penstock.kernel.error;

import dev.penstock.kernel.node.Nodes;
import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/** A unary expression, with the methods that Scala would generate. */
abstract class OfOne extends Expression implements CodegenFallback, Serializable {
  private static final long serialVersionUID = 1L;

  final Expression child;

  OfOne(Expression child) {
    this.child = child;
  }

  abstract Expression over(Expression other);

  @Override
  public ExprCode doGenCode(CodegenContext context, ExprCode code) {
    return CodegenFallback.super.doGenCode(context, code);
  }

  @Override
  public Seq<Expression> children() {
    return Nodes.list(List.of(child));
  }

  @Override
  public Expression withNewChildrenInternal(IndexedSeq<Expression> children) {
    return over(children.head());
  }

  /** Spark's own clone uses reflection, which needs a public constructor. */
  @Override
  public Expression clone() {
    return over((Expression) child.clone());
  }

  @Override
  public boolean canEqual(Object other) {
    return other != null && other.getClass() == getClass();
  }

  @Override
  public int productArity() {
    return 1;
  }

  @Override
  public Object productElement(int n) {
    return child;
  }

  @Override
  public boolean equals(Object other) {
    return canEqual(other) && child.equals(((OfOne) other).child);
  }

  @Override
  public int hashCode() {
    return 31 * child.hashCode() + getClass().hashCode();
  }
}
