package dev.penstock.kernel.hosted;

import dev.penstock.kernel.row.Pack;
import dev.penstock.kernel.row.Unpack;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.codegen.Block;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeBlock;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.expressions.codegen.JavaCode;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The row that a lookup table had for a key at an LSN, as a struct; NULL if it had none or the key is NULL. The table is in a {@link Replica}, so the rows that look up keys need no shuffle to
 * the table.
 *
 * <p>It is declared non-deterministic, or Spark might evaluate it more than once per row.
 */
public final class Lookup extends Expression implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final ThreadLocal<Map<String, Replica.View>> NOW = new ThreadLocal<>();

  /** A lookup table as a member sees it; {@code steps} turn a row of the object into packed key, packed row and weight. */
  record Table(String id, int object, Steps steps) implements Serializable {}

  private final Expression key;
  private final Expression lsn;
  private final String id;
  private final StructType schema;
  private final transient Dataset<Row> table;

  private Lookup(Expression key, Expression lsn, String id, StructType schema, Dataset<Row> table) {
    this.key = key;
    this.lsn = lsn;
    this.id = id;
    this.schema = schema;
    this.table = table;
  }

  /**
   * Joins a frame with a lookup table. Keys of both sides have the same types.
   *
   * @param left its keys and columns, and {@code __lsn}
   * @param right its keys and columns, and {@code __weight} if rows can be retracted
   * @param id tables with the same id have the same rows under the same keys
   * @param inner whether rows without a match are dropped
   */
  public static Dataset<Row> join(
      Dataset<Row> left, Dataset<Row> right, List<String> leftKeys, List<String> rightKeys, List<String> leftColumns,
      List<String> rightColumns, String id, boolean inner) {
    List<Column> packed = new ArrayList<>();
    rightColumns.forEach(name -> packed.add(column(name)));
    boolean weighted = List.of(right.columns()).contains("__weight");
    Dataset<Row> table = right.select(
        key(right, rightKeys).as("__key"), Pack.of(Pack.Mode.ROW, packed).as("__row"),
        (weighted ? column("__weight") : functions.lit(1L)).as("__weight"));
    StructType schema = right.select(rightColumns.stream().map(Lookup::column).toArray(Column[]::new)).schema();
    Expression find = new Lookup(
        ExpressionUtils.expression(key(left, leftKeys)), ExpressionUtils.expression(column("__lsn")), id, schema, table);
    List<Column> found = new ArrayList<>();
    leftColumns.forEach(name -> found.add(column(name)));
    found.add(ExpressionUtils.column(find).as("__right"));
    Dataset<Row> both = left.select(found.toArray(Column[]::new));
    if (inner) {
      both = both.where(column("__right").isNotNull());
    }
    List<Column> flat = new ArrayList<>();
    leftColumns.forEach(name -> flat.add(column(name)));
    rightColumns.forEach(name -> flat.add(column("__right").getField(name).as(name)));
    return both.select(flat.toArray(Column[]::new));
  }

  private static Column column(String name) {
    return functions.col("`" + name + "`");
  }

  /** NULL if one of the columns is. */
  private static Column key(Dataset<Row> frame, List<String> columns) {
    Column missing = functions.lit(false);
    List<Column> parts = new ArrayList<>();
    for (String name : columns) {
      missing = missing.or(column(name).isNull());
      parts.add(Pack.comparable(column(name), frame.schema().apply(name).dataType()));
    }
    return functions.when(functions.not(missing), Pack.of(Pack.Mode.KEY, parts));
  }

  String id() {
    return id;
  }

  /** The frame of the table: packed key, packed row, weight. */
  Dataset<Row> table() {
    return table;
  }

  /** Sets the views that this thread's lookups read; null: none. */
  static void enter(Map<String, Replica.View> views) {
    if (views == null) {
      NOW.remove();
    } else {
      NOW.set(views);
    }
  }

  /** Called by generated code. */
  public InternalRow find(byte[] packed, long at) {
    byte[] row = NOW.get().get(id).find(packed, at);
    if (row == null) {
      return null;
    }
    return Unpack.row(row, schema.size());
  }

  @Override
  public Object eval(InternalRow input) {
    byte[] packed = (byte[]) key.eval(input);
    return packed == null ? null : find(packed, (Long) lsn.eval(input));
  }

  @Override
  public ExprCode doGenCode(CodegenContext context, ExprCode code) {
    String self = context.addReferenceObj("lookup", this, Lookup.class.getName());
    ExprCode packed = key.genCode(context);
    ExprCode at = lsn.genCode(context);
    String text = "\nInternalRow " + code.value() + " = " + packed.isNull() + " ? null : " + self + ".find(" + packed.value()
        + ", " + at.value() + ");\nboolean " + code.isNull() + " = " + code.value() + " == null;\n";
    return new ExprCode(
        block(List.of("", "\n", text), List.of(packed.code(), at.code())), code.isNull(), code.value());
  }

  private static Block block(List<String> text, List<JavaCode> between) {
    return new CodeBlock(CollectionConverters.asScala(text).toList(), CollectionConverters.asScala(between).toList());
  }

  @Override
  public boolean deterministic() {
    return false;
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
    return CollectionConverters.asScala(List.of(key, lsn)).toList();
  }

  @Override
  public Expression withNewChildrenInternal(IndexedSeq<Expression> children) {
    return new Lookup(children.apply(0), children.apply(1), id, schema, table);
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof Lookup;
  }

  @Override
  public int productArity() {
    return 4;
  }

  @Override
  public Object productElement(int n) {
    return switch (n) {
      case 0 -> key;
      case 1 -> lsn;
      case 2 -> id;
      default -> schema;
    };
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Lookup lookup && id.equals(lookup.id) && key.equals(lookup.key) && lsn.equals(lookup.lsn)
        && schema.equals(lookup.schema);
  }

  @Override
  public int hashCode() {
    return 31 * (31 * key.hashCode() + lsn.hashCode()) + id.hashCode();
  }
}
