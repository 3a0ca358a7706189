package dev.penstock.kernel.hosted;

import dev.penstock.kernel.row.Adding;
import dev.penstock.kernel.row.RowCodec;
import dev.penstock.kernel.state.EventTime;
import dev.penstock.kernel.state.Keyed;
import dev.penstock.kernel.state.SlotHandle;
import dev.penstock.kernel.state.SlotStates;
import dev.penstock.kernel.state.SlotTimers;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.types.StructType;
import scala.collection.AbstractIterator;

/** The compiled code of a member, for one thread at a time. */
final class MemberCode {
  /** Takes the rows that the member produces. */
  interface Out {
    /** A row for an operator. */
    void add(int operator, byte[] key, byte[] row) throws IOException;

    /** A row of the query's output, only valid during the call. */
    void put(UnsafeRow row) throws IOException;
  }

  private final Member member;
  private final Gate[] gates;
  private final Group[] groups;
  private final Map<Integer, List<Member.Branch>> ofObjects = new HashMap<>();
  private final List<List<Member.Branch>> ofOperators = new ArrayList<>();
  private int reads;
  private int slot;
  private SlotStates states;

  MemberCode(Member member) {
    this.member = member;
    gates = new Gate[member.operators.size()];
    groups = new Group[member.operators.size()];
    for (int i = 0; i < groups.length; i++) {
      ofOperators.add(null);
    }
  }

  // Before a shuffle

  /** Starts the rows of a task that reads objects. */
  void begin(int task) {
    ofObjects.values().forEach(branches -> branches.forEach(branch -> branch.steps().begin(task)));
    reads = task;
  }

  /** Processes the rows of an object with these columns. */
  void read(int object, List<String> columns, Iterator<InternalRow> rows, Out out) throws IOException {
    List<Member.Branch> all = ofObjects.get(object);
    if (all == null) {
      all = member.branches.stream().filter(branch -> branch.object() == object).toList();
      all.forEach(branch -> {
        branch.steps().bind(columns);
        branch.steps().begin(reads);
      });
      ofObjects.put(object, all);
    }
    while (!all.isEmpty() && rows.hasNext()) {
      lead(all, rows.next(), out);
    }
  }

  private void lead(List<Member.Branch> branches, InternalRow row, Out out) throws IOException {
    for (int i = 0; i < branches.size(); i++) {
      Member.Branch branch = branches.get(i);
      if (branch.to() == Member.OUTPUT) {
        branch.steps().apply(row, made -> out.put((UnsafeRow) made));
      } else {
        branch.steps().apply(row, gate(branch.to())::add);
      }
    }
  }

  private Gate gate(int operator) {
    if (gates[operator] == null) {
      gates[operator] = new Gate(member.operators.get(operator));
    }
    return gates[operator];
  }

  /** How many rows are held in memory. */
  int waiting() {
    int sum = 0;
    for (Gate gate : gates) {
      sum += gate == null ? 0 : gate.waiting();
    }
    return sum;
  }

  /** Emits the buffered rows for operators. */
  void flush(Out out) throws Exception {
    for (int i = 0; i < gates.length; i++) {
      if (gates[i] != null) {
        gates[i].flush(i, out);
      }
    }
  }

  /** Buffers, combines and packs rows before the shuffle to an operator. */
  private static final class Gate {
    private final Keyed keyed;
    private final RowCodec input;
    private final RowCodec key;
    private final RowCodec rest;
    /** Combines rows as they come; null where they are buffered and combined together. */
    private final Adding.Table table;
    private final List<Row> waiting = new ArrayList<>();

    Gate(Member.Operator operator) {
      keyed = operator.keyed();
      input = new RowCodec(operator.input());
      key = new RowCodec(keyed.key());
      rest = new RowCodec(rest(keyed));
      table = keyed.combine() instanceof Adding adding ? adding.table() : null;
    }

    void add(InternalRow made) {
      if (table != null) {
        table.add(made, input);
      } else {
        waiting.add(input.row(made));
      }
    }

    int waiting() {
      return table == null ? waiting.size() : table.size();
    }

    void flush(int operator, Out out) throws Exception {
      Iterator<Row> rows = table != null
          ? table.drain()
          : keyed.combine() == null ? waiting.iterator() : keyed.combine().call(waiting.iterator());
      while (rows.hasNext()) {
        Row row = rows.next();
        if (keyed.leading()) {
          out.add(operator, key.key(row), rest.bytes(row, keyed.key().size()));
        } else {
          out.add(operator, key.key(keyed.keyOf().call(row)), rest.bytes(row));
        }
      }
      waiting.clear();
    }
  }

  /** The columns of the shuffled rows, without the key if that is leading. */
  private static StructType rest(Keyed keyed) {
    StructType rest = new StructType();
    for (int i = keyed.leading() ? keyed.key().size() : 0; i < keyed.travels().size(); i++) {
      rest = rest.add(keyed.travels().apply(i));
    }
    return rest;
  }

  // After a shuffle

  /** Switches to the state of a task. */
  void enter(int newSlot, SlotStates newStates) {
    slot = newSlot;
    states = newStates;
    for (Group group : groups) {
      if (group != null) {
        group.handle.enter(slot, states);
      }
    }
  }

  void leave() {
    states = null;
    for (Group group : groups) {
      if (group != null) {
        group.handle.leave();
      }
    }
  }

  /** Runs an operator on the packed rows of a group. */
  void apply(int operator, byte[] packedKey, Iterator<byte[]> rows, TimerValues time, Out out) throws IOException {
    Group group = group(operator);
    lead(operator, group, group.process(packedKey, rows, time), out);
  }

  /** Fires a timer of an operator. */
  void expire(SlotTimers.Timer timer, TimerValues time, Out out) throws IOException {
    Group group = group(timer.operator());
    lead(timer.operator(), group, group.expire(timer, time), out);
  }

  private void lead(int operator, Group group, scala.collection.Iterator<Row> results, Out out) throws IOException {
    while (results.hasNext()) {
      lead(ofOperators.get(operator), group.output.internal(results.next(), 0), out);
    }
  }

  private Group group(int operator) {
    Group group = groups[operator];
    if (group == null) {
      group = new Group(member.operators.get(operator), operator);
      groups[operator] = group;
      group.handle.enter(slot, states);
      List<Member.Branch> branches =
          member.branches.stream().filter(branch -> branch.object() < 0 && branch.from() == operator).toList();
      branches.forEach(branch -> branch.steps().bind());
      ofOperators.set(operator, branches);
    }
    return group;
  }

  /** An operator with its state. */
  private static final class Group {
    private final Keyed keyed;
    private final RowCodec key;
    private final RowCodec rest;
    private final RowCodec output;
    private final SlotHandle handle;

    Group(Member.Operator operator, int at) {
      keyed = operator.keyed();
      key = new RowCodec(keyed.key());
      rest = new RowCodec(rest(keyed));
      output = new RowCodec(keyed.output());
      handle = new SlotHandle(at, operator.number());
      keyed.processor().setHandle(handle.handle());
      keyed.processor().init(OutputMode.Append(), TimeMode.EventTime());
    }

    scala.collection.Iterator<Row> expire(SlotTimers.Timer timer, TimerValues time) {
      Row group = key.ofKey(timer.key());
      handle.at(timer.key(), group);
      return keyed.expire(group, time, EventTime.fired(timer));
    }

    scala.collection.Iterator<Row> process(byte[] packedKey, Iterator<byte[]> rows, TimerValues time) {
      Row group = key.ofKey(packedKey);
      handle.at(packedKey, group);
      int leading = keyed.leading() ? group.length() : 0;
      return keyed.process(group, new AbstractIterator<>() {
        @Override
        public boolean hasNext() {
          return rows.hasNext();
        }

        @Override
        public Row next() {
          Object[] values = new Object[leading + rest.size()];
          for (int i = 0; i < leading; i++) {
            values[i] = group.get(i);
          }
          rest.values(rows.next(), values, leading);
          return RowFactory.create(values);
        }
      }, time);
    }
  }
}
