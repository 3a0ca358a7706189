package dev.penstock.kernel.hosted;

import dev.penstock.kernel.row.RowCodec;
import dev.penstock.kernel.state.Keyed;
import dev.penstock.kernel.state.SlotHandle;
import dev.penstock.kernel.state.SlotStates;
import java.io.IOException;
import java.util.Iterator;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.StructType;
import scala.collection.AbstractIterator;

/** What a member does with its groups, compiled for one task at a time. */
final class GroupCode {
  private final Member member;
  private final Keyed keyed;
  private final RowCodec key;
  private final RowCodec rest;
  private final RowCodec output;
  private final SlotHandle handle = new SlotHandle();

  GroupCode(Member member) {
    this.member = member;
    keyed = member.keyed;
    key = new RowCodec(keyed.key());
    StructType behind = new StructType();
    for (int i = keyed.leading() ? keyed.key().size() : 0; i < keyed.travels().size(); i++) {
      behind = behind.add(keyed.travels().apply(i));
    }
    rest = new RowCodec(behind);
    output = new RowCodec(keyed.output());
    keyed.processor().setHandle(handle.handle());
    keyed.processor().init(OutputMode.Append(), TimeMode.None());
    member.after.bind();
  }

  /** From here on it works on the state of a task. */
  void enter(int slot, SlotStates states) {
    handle.enter(slot, states);
  }

  void leave() {
    handle.leave();
  }

  /** What takes the packed rows that a group puts out. */
  interface Out {
    void add(byte[] row) throws IOException;
  }

  /** Works on the packed rows of a group. */
  void apply(byte[] packedKey, Iterator<byte[]> rows, Out out) throws IOException {
    Row group = key.ofKey(packedKey);
    handle.at(packedKey, group);
    int leading = keyed.leading() ? group.length() : 0;
    scala.collection.Iterator<Row> unpacked = new AbstractIterator<>() {
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
    };
    // Members of a shared job do not follow time.
    scala.collection.Iterator<Row> results = keyed.process(group, unpacked, null);
    while (results.hasNext()) {
      InternalRow made = member.after.apply(output.internal(results.next(), 0));
      if (made != null) {
        out.add(RowCodec.copy((UnsafeRow) made, 0));
      }
    }
  }
}
