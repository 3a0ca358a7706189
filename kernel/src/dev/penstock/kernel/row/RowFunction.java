package dev.penstock.kernel.row;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * Columns computed from two packed rows, as a packed row. The expressions are resolved and optimised by Spark once, on the
 * driver, and compiled in each task.
 */
public final class RowFunction implements Serializable {
  private static final long serialVersionUID = 1L;

  private final Seq<Expression> outputs;
  private final Seq<Attribute> columns;
  private final int leftColumns;
  private final int rightColumns;
  private transient UnsafeProjection compiled;
  private transient JoinedRow joined;
  private transient UnsafeRow left;
  private transient UnsafeRow right;

  private RowFunction(Seq<Expression> outputs, Seq<Attribute> columns, int leftColumns, int rightColumns) {
    this.outputs = outputs;
    this.columns = columns;
    this.leftColumns = leftColumns;
    this.rightColumns = rightColumns;
  }

  /** Resolves {@code outputs}; throws Spark's analysis error if they do not match the columns. */
  public static RowFunction of(SparkSession spark, List<Column> outputs, StructType left, StructType right) {
    StructType both = left;
    for (var field : right.fields()) {
      both = both.add(field);
    }
    Dataset<Row> empty = spark.createDataFrame(List.<Row>of(), both);
    // A relation that is opaque to the optimizer, so that the expressions are not folded away.
    Dataset<Row> opaque = spark.createDataFrame(empty.javaRDD(), both);
    Seq<Attribute> columns =
        ((org.apache.spark.sql.classic.Dataset<Row>) opaque).queryExecution().analyzed().output();
    List<Column> named = new ArrayList<>();
    for (int i = 0; i < outputs.size(); i++) {
      named.add(outputs.get(i).as("o" + i));
    }
    var chosen = (org.apache.spark.sql.classic.Dataset<Row>) opaque.select(named.toArray(new Column[0]));
    LogicalPlan plan = chosen.queryExecution().optimizedPlan();
    if (!(plan instanceof Project project)) {
      throw new IllegalArgumentException("these columns cannot be computed row by row: " + outputs);
    }
    List<Expression> list = new ArrayList<>();
    for (NamedExpression item : scala.jdk.javaapi.CollectionConverters.asJava(project.projectList())) {
      list.add(item instanceof Alias alias ? alias.child() : (Expression) item);
    }
    Seq<Expression> expressions = scala.jdk.javaapi.CollectionConverters.asScala(list).toList();
    return new RowFunction(expressions, columns, left.size(), right.size());
  }

  /** The packed result for two packed rows; {@code rightRow} may be null if the outputs do not use the right side. */
  public byte[] apply(byte[] leftRow, byte[] rightRow) {
    if (compiled == null) {
      compiled = UnsafeProjection.create(outputs, columns);
      compiled.initialize(0);
      left = new UnsafeRow(leftColumns);
      right = new UnsafeRow(rightColumns);
      joined = new JoinedRow(left, right);
    }
    left.pointTo(leftRow, leftRow.length);
    if (rightRow != null) {
      right.pointTo(rightRow, rightRow.length);
    }
    return compiled.apply(joined).getBytes().clone();
  }
}
