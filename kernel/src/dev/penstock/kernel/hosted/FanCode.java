package dev.penstock.kernel.hosted;

import dev.penstock.kernel.row.Adding;
import dev.penstock.kernel.row.RowCodec;
import dev.penstock.kernel.state.Keyed;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructType;

/** What a member does before the shuffle, compiled for one task at a time. */
final class FanCode {
  /** What comes out: a packed key and a packed row. */
  interface Out {
    void add(byte[] key, byte[] row);
  }

  private final Member member;
  private final RowCodec input;
  private final RowCodec key;
  private final RowCodec rest;
  private final Map<Integer, List<Steps>> bound = new HashMap<>();
  /** What rows are added up in as they come; null where they wait until they can be added up together. */
  private final Adding.Table table;
  private final List<Row> waiting = new ArrayList<>();

  FanCode(Member member) {
    Keyed keyed = member.keyed;
    this.member = member;
    input = new RowCodec(member.input);
    key = new RowCodec(keyed.key());
    StructType travels = keyed.travels();
    StructType behind = new StructType();
    for (int i = keyed.leading() ? keyed.key().size() : 0; i < travels.size(); i++) {
      behind = behind.add(travels.apply(i));
    }
    rest = new RowCodec(behind);
    table = keyed.combine() instanceof Adding adding ? adding.table() : null;
  }

  /** Takes the rows of an object with these columns. */
  void read(int object, List<String> columns, Iterator<InternalRow> rows) {
    List<Steps> all = bound.computeIfAbsent(object, o -> bind(o, columns));
    if (all.isEmpty()) {
      return;
    }
    while (rows.hasNext()) {
      InternalRow row = rows.next();
      for (int i = 0; i < all.size(); i++) {
        InternalRow made = all.get(i).apply(row);
        if (made != null && table != null) {
          table.add(input.row(made));
        } else if (made != null) {
          waiting.add(input.row(made));
        }
      }
    }
  }

  private List<Steps> bind(int object, List<String> columns) {
    List<Steps> out = new ArrayList<>();
    for (Member.Branch branch : member.branches) {
      if (branch.object() == object) {
        branch.steps().bind(columns);
        out.add(branch.steps());
      }
    }
    return out;
  }

  /** How many rows are held in memory. */
  int waiting() {
    return table == null ? waiting.size() : table.size();
  }

  /** Puts out what has been made of the rows. */
  void flush(Out out) throws Exception {
    Keyed keyed = member.keyed;
    Iterator<Row> rows = table != null
        ? table.drain()
        : keyed.combine() == null ? waiting.iterator() : keyed.combine().call(waiting.iterator());
    while (rows.hasNext()) {
      Row row = rows.next();
      if (keyed.leading()) {
        out.add(key.key(row), rest.bytes(row, keyed.key().size()));
      } else {
        out.add(key.key(keyed.keyOf().call(row)), rest.bytes(row));
      }
    }
    waiting.clear();
  }
}
