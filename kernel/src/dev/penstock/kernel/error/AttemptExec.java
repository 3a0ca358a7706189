package dev.penstock.kernel.error;

import dev.penstock.kernel.node.ExecNode;
import dev.penstock.kernel.node.Nodes;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.AttributeSet$;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator$;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.EmptyBlock$;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.expressions.codegen.FalseLiteral$;
import org.apache.spark.sql.catalyst.expressions.codegen.JavaCode$;
import org.apache.spark.sql.catalyst.expressions.codegen.SubExprCodes;
import org.apache.spark.sql.execution.CodegenSupport;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.types.DataType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A filter and a projection in which a row may fail.
 *
 * <p>It generates the code that Spark's own filter and projection would, inside {@code try}: a row that does not fail costs nothing extra. {@link
 * Failures}
 * reports a row that fails.
 */
public final class AttemptExec extends ExecNode implements CodegenSupport {
  private static final long serialVersionUID = 1L;

  private final Attempts.Layout layout;
  private final Seq<Expression> conditions;
  private final Seq<Expression> columns;
  private CodegenSupport parent;

  public AttemptExec(
      Attempts.Layout layout, Seq<Expression> conditions, Seq<Expression> columns, Seq<Attribute> output,
      SparkPlan child) {
    super(output, child);
    this.layout = layout;
    this.conditions = conditions;
    this.columns = columns;
  }

  /** Whether there is a row for every row, with a flag for each attempt. */
  private boolean wide() {
    return output().size() > columns.size();
  }

  private List<Expression> bound(Seq<Expression> some) {
    List<Attribute> input = CollectionConverters.asJava(child().output());
    List<Expression> out = new ArrayList<>();
    for (Expression e : CollectionConverters.asJava(some)) {
      out.add(bound(e, input));
    }
    return out;
  }

  static Expression bound(Expression e, List<Attribute> input) {
    if (e instanceof AttributeReference wanted) {
      for (int i = 0; i < input.size(); i++) {
        if (input.get(i).exprId().equals(wanted.exprId())) {
          return new BoundReference(i, input.get(i).dataType(), input.get(i).nullable());
        }
      }
      throw new IllegalStateException("no column " + wanted + " in " + input);
    }
    return (Expression) e.mapChildren(child -> bound((Expression) child, input));
  }

  private Failures failures() {
    return new Failures(layout, bound(conditions), bound(columns), CollectionConverters.asJava(child().output()));
  }

  // With generated code

  @Override
  public Seq<RDD<InternalRow>> inputRDDs() {
    return ((CodegenSupport) child()).inputRDDs();
  }

  @Override
  public String doProduce(CodegenContext context) {
    return ((CodegenSupport) child()).produce(context, this);
  }

  /** Columns that are passed through unchanged need not be evaluated before. */
  @Override
  public AttributeSet usedInputs() {
    List<Expression> used = new ArrayList<>(CollectionConverters.asJava(conditions));
    for (Expression e : CollectionConverters.asJava(columns)) {
      if (!(e instanceof Attribute) || wide()) {
        used.add(e);
      }
    }
    return AttributeSet$.MODULE$.fromAttributeSets(
        CollectionConverters.asScala(used.stream().map(Expression::references).toList()));
  }

  @Override
  public String doConsume(CodegenContext context, Seq<ExprCode> input, ExprCode row) {
    String failures = context.addReferenceObj("failures", failures(), Failures.class.getName());
    List<Expression> wanted = bound(conditions);
    List<Expression> all = bound(columns);
    List<ExprCode> flags = new ArrayList<>();
    List<ExprCode> out = new ArrayList<>();
    StringBuilder code = new StringBuilder();
    int first = 0;
    for (int i = 0; i < wanted.size(); i++) {
      List<Expression> own = all.subList(first, first + layout.widths[i]);
      flags.add(attempt(context, input, failures, i, wanted.get(i), own, code, out));
      first += layout.widths[i];
    }
    context.currentVars_$eq(input);
    if (!wide()) {
      code.append("if (").append(flags.get(0).value()).append(") {\n")
          .append(consume(context, Nodes.list(out), null)).append("\n}\n");
    } else {
      flags.addAll(out);
      code.append(consume(context, Nodes.list(flags), null));
    }
    return code.toString();
  }

  /** Adds the code of one attempt, and its columns to {@code out}; whether it has succeeded. */
  private ExprCode attempt(
      CodegenContext context, Seq<ExprCode> input, String failures, int number, Expression wanted,
      List<Expression> own, StringBuilder code, List<ExprCode> out) {
    context.currentVars_$eq(input);
    ExprCode condition = wanted.genCode(context);
    List<Expression> computed = own.stream().filter(e -> !handedOn(e)).toList();
    Seq<Expression> list = Nodes.list(computed);
    String before = "";
    String shared = "";
    Seq<ExprCode> values;
    if (conf().subexpressionEliminationEnabled()) {
      SubExprCodes common = context.subexpressionEliminationForWholeStageCodegen(list);
      values = context.withSubExprEliminationExprs(common.states(), () -> codes(context, computed));
      before = evaluateVariables(common.exprCodesNeedEvaluate());
      shared = context.evaluateSubExprEliminationState(common.states().values());
    } else {
      values = codes(context, computed);
    }
    String done = context.freshName("done");
    StringBuilder declared = new StringBuilder("boolean " + done + " = false;\n");
    StringBuilder body = new StringBuilder();
    Iterator<ExprCode> value = CollectionConverters.asJava(values).iterator();
    for (Expression e : own) {
      if (handedOn(e)) {
        out.add(e.genCode(context));
        continue;
      }
      ExprCode computing = value.next();
      DataType type = e.dataType();
      String isNull = context.freshName("isNull");
      String result = context.freshName("value");
      declared.append("boolean ").append(isNull).append(" = true;\n");
      declared.append(CodeGenerator$.MODULE$.javaType(type)).append(' ').append(result).append(" = ")
          .append(CodeGenerator$.MODULE$.defaultValue(type, false)).append(";\n");
      body.append(computing.code()).append('\n');
      body.append(isNull).append(" = ").append(computing.isNull()).append(";\n");
      body.append(result).append(" = ").append(computing.value()).append(";\n");
      out.add(new ExprCode(EmptyBlock$.MODULE$, JavaCode$.MODULE$.isNullVariable(isNull), JavaCode$.MODULE$.variable(result, type)));
    }
    String error = context.freshName("error");
    code.append(before).append('\n').append(declared)
        .append("try {\n").append(condition.code()).append('\n')
        .append("if (!").append(condition.isNull()).append(" && ").append(condition.value()).append(") {\n")
        .append(shared).append('\n').append(body).append(done).append(" = true;\n}\n")
        .append("} catch (Exception ").append(error).append(") {\n")
        .append(done).append(" = false;\n")
        .append(telling(context, input, failures, number, error))
        .append("}\n");
    return new ExprCode(
        EmptyBlock$.MODULE$, FalseLiteral$.MODULE$, JavaCode$.MODULE$.variable(done, org.apache.spark.sql.types.DataTypes.BooleanType));
  }

  /** The code that reports a row; it evaluates columns of the row that were not needed so far. */
  private static String telling(
      CodegenContext context, Seq<ExprCode> input, String failures, int number, String error) {
    String values = context.freshName("row");
    List<ExprCode> columns = CollectionConverters.asJava(input);
    StringBuilder code = new StringBuilder("Object[] " + values + " = new Object[" + columns.size() + "];\n");
    for (int i = 0; i < columns.size(); i++) {
      ExprCode column = columns.get(i);
      code.append(column.code()).append('\n');
      code.append("if (!").append(column.isNull()).append(") {\n")
          .append(values).append('[').append(i).append("] = ").append(column.value()).append(";\n}\n");
    }
    return code.append(failures).append(".report(").append(number).append(", ").append(error).append(", ").append(values)
        .append(");\n").toString();
  }

  private static Seq<ExprCode> codes(CodegenContext context, List<Expression> expressions) {
    List<ExprCode> out = new ArrayList<>();
    expressions.forEach(e -> out.add(e.genCode(context)));
    return Nodes.list(out);
  }

  /** Whether an input column is passed through. If every row has an output row, it must be NULL for queries that do not select the row. */
  private boolean handedOn(Expression e) {
    return !wide() && e instanceof BoundReference;
  }

  @Override
  public CodegenSupport parent() {
    return parent;
  }

  @Override
  public void parent_$eq(CodegenSupport plan) {
    parent = plan;
  }

  // Row by row

  @Override
  public RDD<InternalRow> doExecute() {
    RowAttempts attempts = new RowAttempts(
        layout, bound(conditions), bound(columns), wide(), failures());
    FlatMapFunction<Iterator<InternalRow>, InternalRow> function =
        rows -> attempts.over(TaskContext.getPartitionId(), rows);
    return child().execute().toJavaRDD().mapPartitions(function).rdd();
  }

  @Override
  protected Object[] parts() {
    return new Object[] {layout, conditions, columns};
  }

  @Override
  public SparkPlan withNewChildInternal(SparkPlan newChild) {
    return new AttemptExec(layout, conditions, columns, output(), newChild);
  }
}
