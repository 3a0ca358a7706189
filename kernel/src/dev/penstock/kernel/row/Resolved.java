package dev.penstock.kernel.row;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Expressions over the columns of two rows, resolved and optimised by Spark, and the columns that they refer to. */
record Resolved(Seq<Expression> outputs, Seq<Attribute> columns) {
  /** Throws Spark's analysis error if the outputs do not match the columns. */
  static Resolved of(SparkSession spark, List<Column> outputs, StructType left, StructType right) {
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
    return new Resolved(CollectionConverters.asScala(expressions(project)).toList(), columns);
  }

  /** Inlines the projection in which Spark computes common subexpressions, such as the value of BETWEEN. */
  private static List<Expression> expressions(Project project) {
    Map<ExprId, Expression> below = new HashMap<>();
    if (project.child() instanceof Project inner) {
      List<Expression> computed = expressions(inner);
      List<NamedExpression> items = CollectionConverters.asJava(inner.projectList());
      for (int i = 0; i < items.size(); i++) {
        below.put(items.get(i).exprId(), computed.get(i));
      }
    }
    List<Expression> out = new ArrayList<>();
    for (NamedExpression item : CollectionConverters.asJava(project.projectList())) {
      out.add(replaced(item instanceof Alias alias ? alias.child() : (Expression) item, below));
    }
    return out;
  }

  private static Expression replaced(Expression e, Map<ExprId, Expression> below) {
    if (e instanceof Attribute column) {
      return below.getOrDefault(column.exprId(), e);
    }
    return (Expression) e.mapChildren(child -> replaced((Expression) child, below));
  }
}
