package dev.penstock.kernel.hosted;

import dev.penstock.kernel.error.ErrorChannel;
import dev.penstock.kernel.error.MemberErrors;
import dev.penstock.kernel.state.SlotSizes;
import dev.penstock.kernel.state.SlotStates;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The keyed operators of all members of a shared job. A group is a packed key and a slot, so members have nothing of each other's state. Groups of a slot that is no
 * member are ignored.
 */
final class HostProcessor extends StatefulProcessor<Row, Row, Row> {
  private static final long serialVersionUID = 1L;

  private final HostTable.Reference table;
  private final ErrorChannel errors;
  private final SlotSizes sizes;
  private transient HostTable host;
  private transient SlotStates states;
  private transient Map<Integer, GroupCode> codes;

  HostProcessor(HostTable.Reference table, ErrorChannel errors, SlotSizes sizes) {
    this.table = table;
    this.errors = errors;
    this.sizes = sizes;
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    states = new SlotStates(getHandle(), sizes);
    codes = new HashMap<>();
    host = table.get();
    TaskContext context = TaskContext.get();
    if (context != null) {
      table.sweeps().forEach(states::sweep);
      context.addTaskCompletionListener(task -> {
        if (!task.isFailed() && !task.isInterrupted()) {
          release();
        }
      });
    }
  }

  private void release() {
    codes.forEach((slot, code) -> {
      code.leave();
      HostTable.Entry entry = host.entry(slot);
      if (entry != null) {
        entry.groups.addFirst(code);
      }
    });
    codes.clear();
  }

  @Override
  public scala.collection.Iterator<Row> handleInputRows(
      Row key, scala.collection.Iterator<Row> rows, TimerValues timers) {
    int slot = key.getInt(1);
    MemberErrors.begin(errors, slot);
    try {
      GroupCode code = codes.get(slot);
      if (code == null) {
        HostTable.Entry entry = host.entry(slot);
        if (entry == null) {
          return scala.collection.Iterator$.MODULE$.empty();
        }
        code = HostTable.borrow(entry.groups, entry, GroupCode::new);
        code.enter(slot, states);
        codes.put(slot, code);
      }
      return CollectionConverters.asScala(code.apply(slot, key.getAs(0), rows, timers).iterator());
    } catch (Exception | LinkageError | StackOverflowError e) {
      throw MemberFailed.of(slot, e);
    } finally {
      MemberErrors.end();
    }
  }
}
