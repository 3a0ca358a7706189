package dev.penstock.kernel.hosted;

import java.io.Serializable;
import java.util.List;
import java.util.function.LongConsumer;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeBlock;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.expressions.codegen.FalseLiteral$;
import org.apache.spark.sql.catalyst.expressions.codegen.JavaCode;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Counts late rows of a shared job's member: a condition that is evaluated for late rows only, takes their weight, and is always true. The count travels with the member's output, so a replayed epoch counts
 * nothing twice.
 */
public final class LateRow extends Expression implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final ThreadLocal<LongConsumer> NOW = new ThreadLocal<>();

  private final Expression rows;

  private LateRow(Expression rows) {
    this.rows = rows;
  }

  /** @param rows a BIGINT that is not NULL */
  public static Column of(Column rows) {
    return ExpressionUtils.column(new LateRow(ExpressionUtils.expression(rows)));
  }

  /** Sets the counter for this thread's late rows; null: none. */
  static void enter(LongConsumer count) {
    if (count == null) {
      NOW.remove();
    } else {
      NOW.set(count);
    }
  }

  /** Called by generated code. */
  public static boolean count(long rows) {
    NOW.get().accept(Math.abs(rows));
    return true;
  }

  @Override
  public Object eval(InternalRow input) {
    return count((Long) rows.eval(input));
  }

  @Override
  public ExprCode doGenCode(CodegenContext context, ExprCode code) {
    ExprCode number = rows.genCode(context);
    String text = "\nboolean " + code.value() + " = " + LateRow.class.getName() + ".count(" + number.value() + ");\n";
    CodeBlock block = new CodeBlock(
        CollectionConverters.asScala(List.of("", text)).toList(),
        CollectionConverters.asScala(List.<JavaCode>of(number.code())).toList());
    return new ExprCode(block, FalseLiteral$.MODULE$, code.value());
  }

  @Override
  public boolean deterministic() {
    return false;
  }

  @Override
  public boolean nullable() {
    return false;
  }

  @Override
  public DataType dataType() {
    return DataTypes.BooleanType;
  }

  @Override
  public Seq<Expression> children() {
    return CollectionConverters.asScala(List.of(rows)).toList();
  }

  @Override
  public Expression withNewChildrenInternal(IndexedSeq<Expression> children) {
    return new LateRow(children.apply(0));
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof LateRow;
  }

  @Override
  public int productArity() {
    return 1;
  }

  @Override
  public Object productElement(int n) {
    return rows;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof LateRow late && rows.equals(late.rows);
  }

  @Override
  public int hashCode() {
    return 31 + rows.hashCode();
  }
}
