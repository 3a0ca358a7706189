package dev.penstock.kernel.error;

import dev.penstock.kernel.node.Nodes;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Python functions that return their exceptions instead of raising them.
 *
 * <p>Spark runs Python functions before the node that calls them, for all rows, even if the call is in a CASE branch that is not
 * taken; an exception there fails the job. So such a function returns a struct of its value and its error, and {@link PythonResult} fails where the
 * value is used. An argument that can fail is passed in the same form ({@link Caught}), and the function returns its error.
 */
public final class PythonFunctions {
  private PythonFunctions() {}

  /** Replaces a registered function that returns structs by one that returns the value. */
  public static void unwrap(SparkSession spark, String name) {
    FunctionRegistry registry = ((org.apache.spark.sql.classic.SparkSession) spark).sessionState().functionRegistry();
    FunctionIdentifier registered = new FunctionIdentifier(name, Option.apply("session"), Option.apply("system"));
    Function1<Seq<Expression>, Expression> builder = registry.lookupFunctionBuilder(registered).get();
    registry.registerFunction(
        registered, registry.lookupFunction(registered).get(), arguments -> new PythonResult(builder.apply(arguments)));
  }

  /** The call with arguments that cannot fail. */
  static Expression caught(PythonUDF call) {
    List<Expression> arguments = new ArrayList<>();
    for (Expression argument : CollectionConverters.asJava(call.children())) {
      if (argument instanceof PythonResult result) {
        arguments.add(result.child);
      } else {
        arguments.add(Fallible.test(argument) ? new Caught(argument) : argument);
      }
    }
    return (Expression) call.withNewChildren(Nodes.list(arguments));
  }
}
