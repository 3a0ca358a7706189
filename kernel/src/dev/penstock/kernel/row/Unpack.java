package dev.penstock.kernel.row;

import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/** Inverse of {@link Pack}, as a struct; NULL for NULL. */
public final class Unpack extends Expression implements java.io.Serializable {
  private static final long serialVersionUID = 1L;

  private final Expression packed;
  private final StructType schema;

  private Unpack(Expression packed, StructType schema) {
    this.packed = packed;
    this.schema = schema;
  }

  public static Column of(Column packed, StructType schema) {
    return ExpressionUtils.column(new Unpack(ExpressionUtils.expression(packed), schema));
  }

  /** A row over packed bytes; nothing is copied. */
  public static UnsafeRow row(byte[] bytes, int columns) {
    UnsafeRow row = new UnsafeRow(columns);
    row.pointTo(bytes, bytes.length);
    return row;
  }

  @Override
  public Object eval(InternalRow input) {
    byte[] bytes = (byte[]) packed.eval(input);
    return bytes == null ? null : row(bytes, schema.size());
  }

  @Override
  public ExprCode doGenCode(CodegenContext context, ExprCode code) {
    ExprCode bytes = packed.genCode(context);
    String value = bytes.isNull() + " ? null : " + Unpack.class.getName() + ".row(" + bytes.value() + ", " + schema.size() + ");\n";
    String text = "\nboolean " + code.isNull() + " = " + bytes.isNull() + ";\nInternalRow " + code.value() + " = " + value;
    return new ExprCode(Pack.block(List.of("", text), List.of(bytes.code())), code.isNull(), code.value());
  }

  @Override
  public boolean nullable() {
    return true;
  }

  @Override
  public DataType dataType() {
    return schema;
  }

  @Override
  public Seq<Expression> children() {
    return scala.jdk.javaapi.CollectionConverters.asScala(List.of(packed)).toList();
  }

  @Override
  public Expression withNewChildrenInternal(IndexedSeq<Expression> children) {
    return new Unpack(children.apply(0), schema);
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof Unpack;
  }

  @Override
  public int productArity() {
    return 2;
  }

  @Override
  public Object productElement(int n) {
    return n == 0 ? packed : schema;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Unpack unpack && schema.equals(unpack.schema) && packed.equals(unpack.packed);
  }

  @Override
  public int hashCode() {
    return 31 * packed.hashCode() + schema.hashCode();
  }
}
