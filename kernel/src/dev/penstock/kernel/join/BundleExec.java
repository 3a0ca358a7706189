package dev.penstock.kernel.join;

import dev.penstock.kernel.node.ExecNode;
import dev.penstock.kernel.node.Nodes;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.EmptyBlock$;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.expressions.codegen.FalseLiteral$;
import org.apache.spark.sql.catalyst.expressions.codegen.JavaCode$;
import org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter;
import org.apache.spark.sql.execution.CodegenSupport;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.types.DataTypes;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Packs the rows of each task into {@link Bundle}s.
 *
 * <p>With generated code, the code that computes a row's columns adds them to the bundles directly, so no intermediate row is written.
 */
public final class BundleExec extends ExecNode implements CodegenSupport {
  private static final long serialVersionUID = 1L;

  private CodegenSupport parent;
  /** Names, in the generated code, of the bundles and of the function that emits them. */
  private String bundles;
  private String emit;

  public BundleExec(Seq<Attribute> output, SparkPlan child) {
    super(output, child);
  }

  // With generated code

  @Override
  public Seq<RDD<InternalRow>> inputRDDs() {
    return ((CodegenSupport) child()).inputRDDs();
  }

  /** One input row can cause many output rows. */
  @Override
  public boolean needCopyResult() {
    return true;
  }

  @Override
  public String doProduce(CodegenContext context) {
    String type = Bundles.class.getName();
    bundles = context.addMutableState(type, "bundles", variable -> variable + " = new " + type + "();", true, false);
    String key = context.freshName("key");
    String rows = context.freshName("rows");
    List<ExprCode> columns = new ArrayList<>();
    for (String name : List.of(key, rows)) {
      columns.add(new ExprCode(
          EmptyBlock$.MODULE$, FalseLiteral$.MODULE$, JavaCode$.MODULE$.variable(name, DataTypes.BinaryType)));
    }
    String name = context.freshName("emitBundles");
    emit = context.addNewFunction(
        name,
        "private void " + name + "() throws java.io.IOException {\n"
            + "while (" + bundles + ".next()) {\n"
            + "byte[] " + key + " = " + bundles + ".key();\n"
            + "byte[] " + rows + " = " + bundles + ".rows();\n"
            + consume(context, Nodes.list(columns), null) + "\n}\n}\n",
        false);
    // The child's code returns when output is ready, and resumes when it is called again.
    return ((CodegenSupport) child()).produce(context, this) + "\n" + emit + "();\n";
  }

  @Override
  public String doConsume(CodegenContext context, Seq<ExprCode> input, ExprCode row) {
    List<ExprCode> columns = CollectionConverters.asJava(input);
    StringBuilder code = new StringBuilder(evaluateVariables(input)).append('\n');
    List<String> arguments = new ArrayList<>();
    for (int i = 0; i <= JoinPlan.BEFORE; i++) {
      boolean there = i < columns.size();
      if (i == JoinPlan.TIME || i == JoinPlan.LSN || i == JoinPlan.BEFORE) {
        arguments.add(there ? columns.get(i).isNull().toString() : "true");
      }
      arguments.add(there ? columns.get(i).value().toString() : "0L");
    }
    return code.append(bundles).append(".add(").append(String.join(", ", arguments)).append(");\n")
        .append("if (").append(bundles).append(".full()) {\n").append(emit).append("();\n}\n").toString();
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
    return child().execute().toJavaRDD().mapPartitions(BundleExec::all).rdd();
  }

  private static Iterator<InternalRow> all(Iterator<InternalRow> rows) {
    Bundles bundles = new Bundles();
    UnsafeRowWriter writer = new UnsafeRowWriter(Bundle.SCHEMA.size());
    return new Iterator<>() {
      private boolean found = advance();

      private boolean advance() {
        if (bundles.next()) {
          return true;
        }
        while (!bundles.full() && rows.hasNext()) {
          bundles.add((UnsafeRow) rows.next());
        }
        return bundles.next();
      }

      @Override
      public boolean hasNext() {
        return found;
      }

      @Override
      public InternalRow next() {
        if (!found) {
          throw new java.util.NoSuchElementException();
        }
        writer.reset();
        writer.write(0, bundles.key());
        writer.write(1, bundles.rows());
        found = advance();
        return writer.getRow();
      }
    };
  }

  @Override
  protected Object[] parts() {
    return new Object[] {};
  }

  @Override
  public SparkPlan withNewChildInternal(SparkPlan newChild) {
    return new BundleExec(output(), newChild);
  }
}
