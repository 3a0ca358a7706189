package dev.penstock.kernel.error;

import dev.penstock.kernel.node.ExecNode;
import dev.penstock.kernel.node.Nodes;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.AttributeSet$;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator$;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.EmptyBlock$;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
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
 * <p>It generates the same code as Spark's filter and projection, inside {@code try}, so a row that does not fail costs nothing extra. {@link
 * Failures} reports a row that fails.
 */
public final class AttemptExec extends ExecNode implements CodegenSupport {
  private static final long serialVersionUID = 1L;

  private final Attempt attempt;
  private final Expression condition;
  private final Seq<Expression> columns;
  private CodegenSupport parent;

  public AttemptExec(
      Attempt attempt, Expression condition, Seq<Expression> columns, Seq<Attribute> output, SparkPlan child) {
    super(output, child);
    this.attempt = attempt;
    this.condition = condition;
    this.columns = columns;
  }

  private List<Attribute> input() {
    return CollectionConverters.asJava(child().output());
  }

  private List<Expression> bound() {
    return CollectionConverters.asJava(columns).stream().map(e -> Nodes.bound(e, input())).toList();
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

  /** Columns that are passed through once, unchanged, need not be evaluated first. */
  @Override
  public AttributeSet usedInputs() {
    List<Expression> used = new ArrayList<>(CollectionConverters.asJava(columns));
    Set<ExprId> seen = new HashSet<>();
    Set<ExprId> again = new HashSet<>();
    for (Expression e : used) {
      if (e instanceof Attribute one && !seen.add(one.exprId())) {
        again.add(one.exprId());
      }
    }
    used.removeIf(e -> e instanceof Attribute one && !again.contains(one.exprId()));
    used.add(condition);
    return AttributeSet$.MODULE$.fromAttributeSets(
        CollectionConverters.asScala(used.stream().map(Expression::references).toList()));
  }

  @Override
  public String doConsume(CodegenContext context, Seq<ExprCode> input, ExprCode row) {
    Expression wanted = Nodes.bound(condition, input());
    List<Expression> own = bound();
    String failures = context.addReferenceObj(
        "failures", new Failures(attempt, wanted, own, input()), Failures.class.getName());
    context.currentVars_$eq(input);
    ExprCode first = wanted.genCode(context);
    List<ExprCode> out = new ArrayList<>();
    List<Expression> computed = own.stream().filter(e -> !(e instanceof BoundReference)).toList();
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
      // An input column is passed through.
      if (e instanceof BoundReference) {
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
    StringBuilder code = new StringBuilder(before).append('\n').append(declared)
        .append("try {\n").append(first.code()).append('\n')
        .append("if (!").append(first.isNull()).append(" && ").append(first.value()).append(") {\n")
        .append(shared).append('\n').append(body).append(done).append(" = true;\n}\n")
        .append("} catch (Exception ").append(error).append(") {\n")
        .append(done).append(" = false;\n")
        .append(telling(context, input, failures, error))
        .append("}\n");
    context.currentVars_$eq(input);
    return code.append("if (").append(done).append(") {\n").append(consume(context, Nodes.list(out), null)).append("\n}\n")
        .toString();
  }

  /** The code that reports a row; it evaluates the columns that were not needed so far. */
  private static String telling(
      CodegenContext context, Seq<ExprCode> input, String failures, String error) {
    String values = context.freshName("row");
    List<ExprCode> columns = CollectionConverters.asJava(input);
    StringBuilder code = new StringBuilder("Object[] " + values + " = new Object[" + columns.size() + "];\n");
    for (int i = 0; i < columns.size(); i++) {
      ExprCode column = columns.get(i);
      code.append(column.code()).append('\n');
      code.append("if (!").append(column.isNull()).append(") {\n")
          .append(values).append('[').append(i).append("] = ").append(column.value()).append(";\n}\n");
    }
    return code.append(failures).append(".report(").append(error).append(", ").append(values)
        .append(");\n").toString();
  }

  private static Seq<ExprCode> codes(CodegenContext context, List<Expression> expressions) {
    List<ExprCode> out = new ArrayList<>();
    expressions.forEach(e -> out.add(e.genCode(context)));
    return Nodes.list(out);
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
    Attempt told = attempt;
    Expression wanted = condition;
    ArrayList<Expression> made = new ArrayList<>(CollectionConverters.asJava(columns));
    ArrayList<Attribute> input = new ArrayList<>(input());
    FlatMapFunction<Iterator<InternalRow>, InternalRow> function = rows -> {
      RowAttempt one = new RowAttempt(told, wanted, made);
      one.bind(input, TaskContext.getPartitionId());
      return one.over(rows);
    };
    return child().execute().toJavaRDD().mapPartitions(function).rdd();
  }

  @Override
  protected Object[] parts() {
    return new Object[] {attempt, condition, columns};
  }

  @Override
  public SparkPlan withNewChildInternal(SparkPlan newChild) {
    return new AttemptExec(attempt, condition, columns, output(), newChild);
  }
}
