package dev.penstock.kernel.row;

import org.apache.spark.TaskContext;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.Platform;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/**
 * Several columns as one BINARY: the bytes of their UnsafeRow. Join state and join processors hold rows in this form, so
 * that a row of any types passes through an operator without being decoded.
 *
 * <p>Two rows are the same row when their bytes are. A {@link Mode#KEY} starts with a hash of itself in place of the null
 * bits (its columns must not be NULL), because Spark sorts binary values by their first eight bytes.
 * {@link Mode#SEQUENCE} has no columns and numbers the rows of a task in the order in which they are read.
 */
public final class Pack extends Expression implements CodegenFallback, java.io.Serializable {
  private static final long serialVersionUID = 1L;
  private static final long SEED = 42L;
  private static final int TASK_SHIFT = 40;

  public enum Mode {
    ROW,
    KEY,
    SEQUENCE
  }

  private final Seq<Expression> columns;
  private final Mode mode;
  private transient UnsafeProjection projection;
  private transient long read;

  private Pack(Seq<Expression> columns, Mode mode) {
    this.columns = columns;
    this.mode = mode;
  }

  /** The packed form of some columns. */
  public static Column of(Mode mode, java.util.List<Column> columns) {
    java.util.List<Expression> list = new java.util.ArrayList<>();
    for (Column column : columns) {
      list.add(ExpressionUtils.expression(column));
    }
    Seq<Expression> children = scala.jdk.javaapi.CollectionConverters.asScala(list).toList();
    return ExpressionUtils.column(new Pack(children, mode));
  }

  /** The hash by which packed rows are partitioned and ordered. */
  public static long hash(byte[] row) {
    return XXH64.hashUnsafeBytes(row, Platform.BYTE_ARRAY_OFFSET, row.length, SEED);
  }

  @Override
  public Object eval(InternalRow input) {
    if (mode == Mode.SEQUENCE) {
      return ((long) TaskContext.getPartitionId() << TASK_SHIFT) | read++;
    }
    if (projection == null) {
      projection = UnsafeProjection.create(columns);
    }
    UnsafeRow row = projection.apply(input);
    byte[] bytes = new byte[row.getSizeInBytes()];
    Platform.copyMemory(row.getBaseObject(), row.getBaseOffset(), bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length);
    if (mode == Mode.KEY && bytes.length >= Long.BYTES) {
      Platform.putLong(bytes, Platform.BYTE_ARRAY_OFFSET, hash(bytes));
    }
    return bytes;
  }

  @Override
  public boolean deterministic() {
    return mode != Mode.SEQUENCE && super.deterministic();
  }

  @Override
  public boolean stateful() {
    return true;
  }

  @Override
  public ExprCode doGenCode(CodegenContext context, ExprCode code) {
    return CodegenFallback.super.doGenCode(context, code);
  }

  @Override
  public boolean nullable() {
    return false;
  }

  @Override
  public DataType dataType() {
    return mode == Mode.SEQUENCE ? DataTypes.LongType : DataTypes.BinaryType;
  }

  @Override
  public Seq<Expression> children() {
    return columns;
  }

  @Override
  public Expression withNewChildrenInternal(IndexedSeq<Expression> children) {
    return new Pack(children, mode);
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof Pack;
  }

  @Override
  public int productArity() {
    return 2;
  }

  @Override
  public Object productElement(int n) {
    return n == 0 ? columns : mode;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Pack pack && mode == pack.mode && columns.equals(pack.columns);
  }

  @Override
  public int hashCode() {
    return 31 * columns.hashCode() + mode.ordinal();
  }
}
