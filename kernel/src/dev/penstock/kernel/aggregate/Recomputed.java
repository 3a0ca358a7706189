package dev.penstock.kernel.aggregate;

import dev.penstock.kernel.row.Wire;
import dev.penstock.kernel.state.OrderKey.Key;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.CatalystTypeConverters;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.aggregate.DeclarativeAggregate;
import org.apache.spark.sql.catalyst.expressions.aggregate.ImperativeAggregate;
import org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataType;
import scala.Function1;
import scala.jdk.javaapi.CollectionConverters;

/**
 * An aggregate without an incremental form: Spark's own implementation, over all rows of the group, ordered by their values.
 *
 * <p>The arguments of a row are shuffled and stored in their wire types, whose values equal Spark's internal ones.
 */
final class Recomputed implements Serializable {
  private static final long serialVersionUID = 1L;

  private final Expression result;
  private final AggregateFunction[] calls;
  private final Expression[][] updates;
  private final DataType[] inputs;
  private final DataType output;
  private transient Function1<Object, Object>[] internal;
  private transient Function1<Object, Object> external;

  private Recomputed(Expression result, List<AggregateFunction> calls, List<String> columns, DataType[] inputs, DataType output) {
    this.result = result;
    this.calls = new AggregateFunction[calls.size()];
    this.updates = new Expression[calls.size()][];
    this.inputs = inputs;
    this.output = output;
    for (int i = 0; i < this.calls.length; i++) {
      AggregateFunction call = calls.get(i);
      if (call instanceof DeclarativeAggregate declarative) {
        List<? extends Expression> buffer = CollectionConverters.asJava(declarative.aggBufferAttributes());
        this.updates[i] = CollectionConverters.asJava(declarative.updateExpressions()).stream()
            .map(e -> bound(e, buffer, columns)).toArray(Expression[]::new);
        this.calls[i] = call;
      } else {
        this.calls[i] = (AggregateFunction) bound(call, List.of(), columns);
      }
    }
  }

  /**
   * @param sql the call, over columns of {@code in}
   * @param columns the columns that it reads
   * @param inputs their wire types
   */
  static Recomputed of(Dataset<Row> in, String sql, List<String> columns, DataType[] inputs, DataType output) {
    Dataset<Row> typed = in.groupBy().agg(functions.expr(sql));
    LogicalPlan plan = ReplaceExpressions$.MODULE$.apply(
        ((org.apache.spark.sql.classic.Dataset<Row>) typed).queryExecution().analyzed());
    while (!(plan instanceof org.apache.spark.sql.catalyst.plans.logical.Aggregate)) {
      plan = (LogicalPlan) plan.children().head();
    }
    var aggregate = (org.apache.spark.sql.catalyst.plans.logical.Aggregate) plan;
    Expression call = (Expression) aggregate.aggregateExpressions().head();
    List<AggregateFunction> calls = new ArrayList<>();
    return new Recomputed(without(call instanceof Alias a ? a.child() : call, calls), calls, columns, inputs, Wire.type(output));
  }

  /** The expression with each aggregate replaced by a reference to its value; the aggregates are added to {@code calls}. */
  private static Expression without(Expression e, List<AggregateFunction> calls) {
    if (e instanceof AggregateExpression a) {
      calls.add(a.aggregateFunction());
      return new BoundReference(calls.size() - 1, a.dataType(), true);
    }
    return mapped(e, child -> without(child, calls));
  }

  /** The expression with the columns of a buffer, then those of a row, bound by position. */
  private static Expression bound(Expression e, List<? extends Expression> buffer, List<String> columns) {
    if (e instanceof AttributeReference a) {
      for (int i = 0; i < buffer.size(); i++) {
        if (((AttributeReference) buffer.get(i)).exprId().equals(a.exprId())) {
          return new BoundReference(i, a.dataType(), true);
        }
      }
      int at = columns.indexOf(a.name());
      if (at < 0) {
        throw new IllegalArgumentException("no column " + a.name());
      }
      return new BoundReference(buffer.size() + at, a.dataType(), true);
    }
    return mapped(e, child -> bound(child, buffer, columns));
  }

  private static Expression mapped(Expression e, java.util.function.Function<Expression, Expression> change) {
    List<Expression> children = new ArrayList<>();
    boolean same = true;
    for (Expression child : CollectionConverters.asJava(e.children())) {
      Expression made = change.apply(child);
      same &= made == child;
      children.add(made);
    }
    return same ? e : (Expression) e.withNewChildren(CollectionConverters.asScala(children).toIndexedSeq());
  }

  /** The value over a bag of rows, in its wire type; with {@code distinct}, equal rows count once. */
  Object of(Bag rows, boolean distinct) {
    open();
    Object[] values = new Object[calls.length];
    for (int i = 0; i < calls.length; i++) {
      values[i] = calls[i] instanceof DeclarativeAggregate d
          ? declarative(d, updates[i], rows, distinct)
          : imperative((ImperativeAggregate) calls[i], rows, distinct);
    }
    return external.apply(result.eval(new GenericInternalRow(values)));
  }

  @SuppressWarnings("unchecked")
  private void open() {
    if (internal == null) {
      Function1<Object, Object>[] made = new Function1[inputs.length];
      for (int i = 0; i < made.length; i++) {
        made[i] = CatalystTypeConverters.createToCatalystConverter(inputs[i]);
      }
      external = CatalystTypeConverters.createToScalaConverter(output);
      internal = made;
    }
  }

  private Object declarative(DeclarativeAggregate call, Expression[] update, Bag rows, boolean distinct) {
    List<? extends Expression> buffer = CollectionConverters.asJava(call.aggBufferAttributes());
    Object[] state = CollectionConverters.asJava(call.initialValues()).stream().map(e -> e.eval(null)).toArray();
    JoinedRow both = new JoinedRow();
    for (Map.Entry<Key, Long> entry : rows.counts().entrySet()) {
      InternalRow row = row(rows, entry.getKey());
      for (long left = distinct ? Math.min(1, entry.getValue()) : entry.getValue(); left > 0; left--) {
        both.apply(new GenericInternalRow(state), row);
        Object[] next = new Object[state.length];
        for (int i = 0; i < next.length; i++) {
          next[i] = update[i].eval(both);
        }
        state = next;
      }
    }
    return bound(call.evaluateExpression(), buffer, List.of()).eval(new GenericInternalRow(state));
  }

  private Object imperative(ImperativeAggregate call, Bag rows, boolean distinct) {
    InternalRow state = new GenericInternalRow(call.aggBufferAttributes().size());
    call.initialize(state);
    for (Map.Entry<Key, Long> entry : rows.counts().entrySet()) {
      InternalRow row = row(rows, entry.getKey());
      for (long left = distinct ? Math.min(1, entry.getValue()) : entry.getValue(); left > 0; left--) {
        call.update(state, row);
      }
    }
    return call.eval(state);
  }

  private InternalRow row(Bag rows, Key key) {
    Object[] given = rows.decode(key);
    Object[] values = new Object[inputs.length];
    for (int i = 0; i < values.length; i++) {
      values[i] = internal[i].apply(given[i]);
    }
    return new GenericInternalRow(values);
  }
}
