package dev.penstock.kernel.row;

import java.util.List;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeBlock;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.expressions.codegen.FalseLiteral$;
import org.apache.spark.sql.catalyst.expressions.codegen.GenerateUnsafeProjection$;
import org.apache.spark.sql.catalyst.expressions.codegen.JavaCode;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.unsafe.Platform;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Several columns as one BINARY: the bytes of their UnsafeRow. Join state and join processors hold rows in this form, so
 * rows of any types pass through an operator without decoding.
 *
 * <p>Two rows are the same row when their bytes are. A {@link Mode#KEY} starts with a hash of itself in place of the null
 * bits (its columns must not be NULL), because Spark sorts binary values by their first eight bytes.
 * {@link Mode#SEQUENCE} has no columns and numbers the rows of a task in the order in which they are read.
 */
public final class Pack extends Expression implements java.io.Serializable {
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
  public static Column of(Mode mode, List<Column> columns) {
    List<Expression> list = new java.util.ArrayList<>();
    for (Column column : columns) {
      list.add(ExpressionUtils.expression(column));
    }
    Seq<Expression> children = CollectionConverters.asScala(list).toList();
    return ExpressionUtils.column(new Pack(children, mode));
  }

  /** A key column in which -0.0 equals 0.0 and NaN equals NaN, as in Spark's own joins. */
  public static Column comparable(Column key, DataType type) {
    if (type instanceof DoubleType || type instanceof FloatType) {
      String name = type.typeName();
      return functions.when(functions.isnan(key), functions.lit(Double.NaN).cast(name))
          .otherwise(key.plus(functions.lit(0.0).cast(name)));
    }
    return key;
  }

  /** The hash by which packed rows are partitioned and ordered. */
  public static long hash(byte[] row) {
    return hash(row, Platform.BYTE_ARRAY_OFFSET, row.length);
  }

  /** The same hash, of a row in memory. */
  public static long hash(Object base, long at, int length) {
    return XXH64.hashUnsafeBytes(base, at, length, SEED);
  }

  @Override
  public Object eval(InternalRow input) {
    if (mode == Mode.SEQUENCE) {
      return first() | read++;
    }
    if (projection == null) {
      projection = UnsafeProjection.create(columns);
    }
    UnsafeRow row = projection.apply(input);
    return mode == Mode.KEY ? key(row) : bytes(row);
  }

  /** Called by generated code. */
  public static byte[] bytes(UnsafeRow row) {
    byte[] bytes = new byte[row.getSizeInBytes()];
    Platform.copyMemory(row.getBaseObject(), row.getBaseOffset(), bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length);
    return bytes;
  }

  /** Called by generated code. */
  public static byte[] key(UnsafeRow row) {
    byte[] bytes = bytes(row);
    if (bytes.length >= Long.BYTES) {
      Platform.putLong(bytes, Platform.BYTE_ARRAY_OFFSET, hash(bytes));
    }
    return bytes;
  }

  /** The number of the first row of a task; called by generated code. */
  public static long first() {
    return (long) TaskContext.getPartitionId() << TASK_SHIFT;
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
    String own = Pack.class.getName();
    if (mode == Mode.SEQUENCE) {
      // Not every caller of generated code initialises it per partition; one that does may reuse it for several partitions.
      String next = context.addMutableState("long", "next", variable -> variable + " = -1L;", false, true);
      context.addPartitionInitializationStatement(next + " = (long) partitionIndex << " + TASK_SHIFT + ";");
      String text = "if (" + next + " < 0L) {\n" + next + " = " + own + ".first();\n}\nlong " + code.value() + " = " + next + "++;\n";
      return new ExprCode(block(List.of(text), List.of()), FalseLiteral$.MODULE$, code.value());
    }
    ExprCode row = GenerateUnsafeProjection$.MODULE$.createCode(context, columns, false);
    String call = mode == Mode.KEY ? ".key(" : ".bytes(";
    String text = "\nbyte[] " + code.value() + " = " + own + call + row.value() + ");\n";
    return new ExprCode(block(List.of("", text), List.of(row.code())), FalseLiteral$.MODULE$, code.value());
  }

  /** Interleaves parts of a text with code. */
  static CodeBlock block(List<String> text, List<JavaCode> between) {
    return new CodeBlock(CollectionConverters.asScala(text).toList(), CollectionConverters.asScala(between).toList());
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
