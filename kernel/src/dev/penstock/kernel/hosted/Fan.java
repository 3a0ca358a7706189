package dev.penstock.kernel.hosted;

import dev.penstock.kernel.error.ErrorChannel;
import dev.penstock.kernel.error.MemberErrors;
import dev.penstock.kernel.log.EpochInput;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.TreeSet;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Hands each row of an input to the members that read it. Its elements are the rows that members produce for their operators, the counts of late rows and, without an {@link Output}, the rows that members emit.
 *
 * <p>The column {@code __to} of an input is constant within a batch and says who reads it: all members up to that slot or, if negative, one new member, which
 * reads rows that the others have already read.
 */
final class Fan implements Iterator<Packed>, AutoCloseable {
  /** Takes the rows that members emit without an operator. */
  interface Output {
    /** The row is only valid during the call. */
    void write(int slot, UnsafeRow row) throws IOException;
  }

  /** The column that says who reads a row. */
  static final String TO = "__to";
  /** Buffered rows, over all members, at which they are combined. */
  private static final int WAITING = 1 << 17;

  private final HostTable host;
  private final ErrorChannel errors;
  private final int object;
  private final List<String> columns;
  private final int toAt;
  private final EpochInput.Batches batches;
  private final Output output;
  private final Map<Integer, MemberCode> codes = new LinkedHashMap<>();
  /** The current batch, valid until the next one is fetched, and the members that have yet to read it. */
  private ColumnarBatch batch;
  private Iterator<Integer> readers = Collections.emptyIterator();
  private Iterator<Integer> last;
  private int waiting;
  /** Number of late rows by member; null once reported. */
  private Map<Integer, long[]> late = new HashMap<>();
  private List<Packed> made = new ArrayList<>();
  private int next;
  private boolean done;

  /** @param output null: the rows that members emit are among the elements */
  Fan(HostTable host, ErrorChannel errors, EpochInput input, Output output) {
    this.host = host;
    this.errors = errors;
    this.object = input.object();
    this.columns = input.columns();
    this.toAt = columns.indexOf(TO);
    this.batches = input.open();
    this.output = output;
  }

  /** Returns the members' code for reuse, unless it was interrupted in the middle of its work. */
  @Override
  public void close() {
    batches.close();
    if (done) {
      codes.forEach((slot, code) -> {
        HostTable.Entry entry = host.entry(slot);
        if (entry != null) {
          entry.giveBack(code);
        }
      });
    }
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
        if (last.hasNext()) {
          flush(last.next());
        } else if (late != null) {
          late.forEach((slot, rows) -> made.add(Packed.late(slot, rows[0])));
          late = null;
        } else {
          done = true;
          return false;
        }
      }
    }
    return true;
  }

  private Iterator<Integer> readers(int to) {
    return to < 0
        ? List.of(-to).iterator()
        : new TreeSet<>(host.members().keySet()).headSet(to, true).iterator();
  }

  /** Lets one member read the batch. */
  private void read(int slot) {
    HostTable.Entry entry = host.entry(slot);
    if (entry == null && !codes.containsKey(slot)) {
      return;
    }
    work(slot, () -> {
      MemberCode code = codes.get(slot);
      if (code == null) {
        code = entry.borrow();
        code.begin(TaskContext.getPartitionId());
        codes.put(slot, code);
      }
      int before = code.waiting();
      code.read(object, columns, batch.rowIterator(), out(slot));
      waiting += code.waiting() - before;
    });
    if (waiting >= WAITING) {
      flush(slot);
    }
  }

  private void flush(int slot) {
    MemberCode code = codes.get(slot);
    waiting -= code.waiting();
    work(slot, () -> code.flush(out(slot)));
  }

  private MemberCode.Out out(int slot) {
    return new MemberCode.Out() {
      @Override
      public void add(int operator, byte[] key, byte[] row) {
        made.add(new Packed(slot, operator, key, row));
      }

      @Override
      public void put(UnsafeRow row) throws IOException {
        if (output != null) {
          output.write(slot, row);
        } else {
          made.add(Packed.output(slot, row));
        }
      }
    };
  }

  private void work(int slot, Work work) {
    MemberErrors.begin(errors, slot);
    Lookup.enter(host.views(slot));
    LateRow.enter(rows -> late.computeIfAbsent(slot, s -> new long[1])[0] += rows);
    try {
      work.run();
    } catch (Exception | LinkageError | StackOverflowError e) {
      throw MemberFailed.of(slot, e);
    } finally {
      Lookup.enter(null);
      LateRow.enter(null);
      MemberErrors.end();
    }
  }

  @Override
  public Packed next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    return made.get(next++);
  }

  private interface Work {
    void run() throws Exception;
  }
}
