package dev.penstock.kernel.hosted;

import dev.penstock.kernel.error.ErrorChannel;
import dev.penstock.kernel.error.MemberErrors;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Hands each row of a scan to the members that read it, and puts out what they make of it: slot, packed key, packed row.
 *
 * <p>The column {@code __to} of the scan is the same in a whole batch and says who reads it: all members up to that slot, or, below zero, one member, which
 * begins with rows that are old to the others.
 */
final class Fan implements Serializable {
  private static final long serialVersionUID = 1L;
  static final StructType OUTPUT = new StructType()
      .add("slot", DataTypes.IntegerType, false)
      .add("key", DataTypes.BinaryType, false)
      .add("row", DataTypes.BinaryType, false);
  /** The column of a scan that says who reads a row. */
  static final String TO = "__to";
  /** Rows that wait, over all members, until they are added up. */
  private static final int WAITING = 1 << 17;

  private final HostTable.Reference table;
  private final ErrorChannel errors;
  private final int object;
  private final ArrayList<String> columns;
  private final int toAt;

  Fan(HostTable.Reference table, ErrorChannel errors, int object, List<String> columns) {
    this.table = table;
    this.errors = errors;
    this.object = object;
    this.columns = new ArrayList<>(columns);
    this.toAt = columns.indexOf(TO);
  }

  Iterator<InternalRow> over(Iterator<ColumnarBatch> batches) {
    return new Task(batches);
  }

  private final class Task implements Iterator<InternalRow> {
    private final Iterator<ColumnarBatch> batches;
    private final HostTable host = table.get();
    private final Map<Integer, FanCode> codes = new LinkedHashMap<>();
    private final UnsafeProjection pack = UnsafeProjection.create(OUTPUT);
    /** The batch that is being read, and the members that have yet to read it. It is gone when the next one is asked for. */
    private ColumnarBatch batch;
    private Iterator<Integer> readers = Collections.emptyIterator();
    private Iterator<Integer> last;
    private int waiting;
    private List<Object[]> made = new ArrayList<>();
    private int next;

    Task(Iterator<ColumnarBatch> batches) {
      this.batches = batches;
      TaskContext.get().addTaskCompletionListener(task -> {
        if (!task.isFailed() && !task.isInterrupted()) {
          release();
        }
      });
    }

    private void release() {
      codes.forEach((slot, code) -> {
        HostTable.Entry entry = host.entry(slot);
        if (entry != null) {
          entry.fans.addFirst(code);
        }
      });
      codes.clear();
    }

    @Override
    public boolean hasNext() {
      while (next >= made.size()) {
        made = new ArrayList<>();
        next = 0;
        if (readers.hasNext()) {
          read(readers.next());
        } else if (batches.hasNext()) {
          batch = batches.next();
          readers = batch.numRows() == 0 ? Collections.emptyIterator() : readers(batch.column(toAt).getInt(0));
        } else {
          if (last == null) {
            last = new ArrayList<>(codes.keySet()).iterator();
          }
          if (!last.hasNext()) {
            return false;
          }
          flush(last.next());
        }
      }
      return true;
    }

    private Iterator<Integer> readers(int to) {
      return to < 0
          ? List.of(-to).iterator()
          : new TreeSet<>(host.members().keySet()).headSet(to, true).iterator();
    }

    /** One member reads the batch. */
    private void read(int slot) {
      HostTable.Entry entry = host.entry(slot);
      if (entry == null && !codes.containsKey(slot)) {
        return;
      }
      work(slot, () -> {
        FanCode code = codes.get(slot);
        if (code == null) {
          code = HostTable.borrow(entry.fans, entry, FanCode::new);
          codes.put(slot, code);
        }
        int before = code.waiting();
        code.read(object, columns, batch.rowIterator());
        waiting += code.waiting() - before;
      });
      if (waiting >= WAITING) {
        flush(slot);
      }
    }

    private void flush(int slot) {
      FanCode code = codes.get(slot);
      waiting -= code.waiting();
      work(slot, () -> code.flush((key, row) -> made.add(new Object[] {slot, key, row})));
    }

    private void work(int slot, Work work) {
      MemberErrors.begin(errors, slot);
      try {
        work.run();
      } catch (Exception | LinkageError | StackOverflowError e) {
        throw MemberFailed.of(slot, e);
      } finally {
        MemberErrors.end();
      }
    }

    @Override
    public InternalRow next() {
      if (!hasNext()) {
        throw new java.util.NoSuchElementException();
      }
      return pack.apply(new GenericInternalRow(made.get(next++)));
    }
  }

  private interface Work {
    void run() throws Exception;
  }
}
