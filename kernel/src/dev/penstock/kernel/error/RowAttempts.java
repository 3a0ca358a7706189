package dev.penstock.kernel.error;

import dev.penstock.kernel.node.Nodes;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/** Evaluates an {@link AttemptExec} row by row, for plans whose generated code would be too large. */
final class RowAttempts implements Serializable {
  private static final long serialVersionUID = 1L;

  private final Attempts.Layout layout;
  private final ArrayList<Expression> conditions;
  private final ArrayList<Expression> columns;
  private final boolean flags;
  private final Failures failures;

  RowAttempts(
      Attempts.Layout layout, List<Expression> conditions, List<Expression> columns, boolean flags,
      Failures failures) {
    this.layout = layout;
    this.conditions = new ArrayList<>(conditions);
    this.columns = new ArrayList<>(columns);
    this.flags = flags;
    this.failures = failures;
  }

  Iterator<InternalRow> over(int partition, Iterator<InternalRow> rows) {
    List<One> attempts = new ArrayList<>();
    int first = 0;
    for (int i = 0; i < conditions.size(); i++) {
      attempts.add(new One(i, columns.subList(first, first + layout.widths[i]), partition));
      first += layout.widths[i];
    }
    return flags ? wide(attempts, rows) : some(attempts.get(0), rows);
  }

  /** One attempt, compiled. */
  private final class One {
    final int number;
    final int width;
    final DataType[] types;
    private final BasePredicate condition;
    private final UnsafeProjection projection;

    One(int number, List<Expression> own, int partition) {
      this.number = number;
      width = own.size();
      types = own.stream().map(Expression::dataType).toArray(DataType[]::new);
      condition = Predicate$.MODULE$.create(conditions.get(number));
      condition.initialize(partition);
      projection = UnsafeProjection.create(Nodes.<Expression>list(own));
      projection.initialize(partition);
    }

    /** The columns, which the next call overwrites; null if there is no row. */
    UnsafeRow apply(InternalRow row) {
      try {
        return condition.eval(row) ? projection.apply(row) : null;
      } catch (Exception e) {
        failures.report(number, e, row);
        return null;
      }
    }
  }

  private static Iterator<InternalRow> some(One attempt, Iterator<InternalRow> rows) {
    return new Iterator<>() {
      private UnsafeRow next;

      @Override
      public boolean hasNext() {
        while (next == null && rows.hasNext()) {
          next = attempt.apply(rows.next());
        }
        return next != null;
      }

      @Override
      public InternalRow next() {
        if (!hasNext()) {
          throw new NoSuchElementException();
        }
        UnsafeRow row = next;
        next = null;
        return row;
      }
    };
  }

  private Iterator<InternalRow> wide(List<One> attempts, Iterator<InternalRow> rows) {
    List<Expression> all = new ArrayList<>();
    attempts.forEach(a -> all.add(new BoundReference(all.size(), DataTypes.BooleanType, false)));
    columns.forEach(c -> all.add(new BoundReference(all.size(), c.dataType(), true)));
    UnsafeProjection whole = UnsafeProjection.create(Nodes.<Expression>list(all));
    return new Iterator<>() {
      @Override
      public boolean hasNext() {
        return rows.hasNext();
      }

      @Override
      public InternalRow next() {
        InternalRow row = rows.next();
        Object[] values = new Object[all.size()];
        int at = attempts.size();
        for (One attempt : attempts) {
          UnsafeRow own = attempt.apply(row);
          values[attempt.number] = own != null;
          for (int i = 0; i < attempt.width; i++, at++) {
            values[at] = own == null || own.isNullAt(i) ? null : own.get(i, attempt.types[i]);
          }
        }
        return whole.apply(new GenericInternalRow(values));
      }
    };
  }
}
