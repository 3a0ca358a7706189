package dev.penstock.kernel.plan;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import scala.collection.Iterator;

/** Whether the expressions of a frame mean the same inside CASE WHEN, where they are evaluated only for some rows. */
public final class Guard {

  private Guard() {}

  /** False if an expression is non-deterministic, or always runs for all rows, as Python functions do. */
  public static boolean allows(Dataset<Row> frame) {
    return allows(frame.queryExecution().analyzed());
  }

  private static boolean allows(LogicalPlan plan) {
    for (Iterator<Expression> i = plan.expressions().iterator(); i.hasNext(); ) {
      Expression e = i.next();
      if (!e.deterministic() || e.exists(n -> n instanceof PythonUDF || n instanceof SubqueryExpression)) {
        return false;
      }
    }
    for (Iterator<LogicalPlan> i = plan.children().iterator(); i.hasNext(); ) {
      if (!allows(i.next())) {
        return false;
      }
    }
    return true;
  }
}
