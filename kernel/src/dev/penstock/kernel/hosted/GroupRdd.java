package dev.penstock.kernel.hosted;

import dev.penstock.kernel.error.ErrorChannel;
import dev.penstock.kernel.error.MemberErrors;
import dev.penstock.kernel.log.EpochLoop;
import dev.penstock.kernel.log.PackedOutput;
import dev.penstock.kernel.log.Written;
import dev.penstock.kernel.node.Nodes;
import dev.penstock.kernel.state.SlotSizes;
import dev.penstock.kernel.state.SlotStates;
import dev.penstock.kernel.state.StoredState;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.Dependency;
import org.apache.spark.OneToOneDependency;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import scala.Tuple2;
import scala.collection.AbstractIterator;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * The keyed operators of all members, over the rows of an epoch by partition of the state: each task reads one version of its partition and makes the next. Members have nothing of
 * each other's state. Groups of a slot that is no member are ignored.
 */
final class GroupRdd extends RDD<EpochLoop.Done> {
  private static final long serialVersionUID = 1L;
  private static final ClassTag<InternalRow> ROW = ClassTag$.MODULE$.apply(InternalRow.class);

  /** A partition of the state. Its rows, if they are few; null if they come through a shuffle. */
  private record Piece(int index, String name, byte[] rows, Partition shuffled) implements Partition {}

  private final HostTable.Reference table;
  private final ErrorChannel errors;
  private final SlotSizes sizes;
  private final StoredState state;
  private final long epoch;
  private final PackedOutput output;
  private final transient EpochLoop.Epoch plan;
  private final transient byte[][] few;
  private final transient RDD<Tuple2<Object, InternalRow>> many;

  /** @param few the rows of each partition; null if they come through a shuffle, {@code many} */
  GroupRdd(
      SparkContext spark, HostTable.Reference table, ErrorChannel errors, SlotSizes sizes, StoredState state,
      EpochLoop.Epoch plan, byte[][] few, RDD<Tuple2<Object, InternalRow>> many) {
    super(spark, Nodes.list(depends(many)), ClassTag$.MODULE$.apply(EpochLoop.Done.class));
    this.table = table;
    this.errors = errors;
    this.sizes = sizes;
    this.state = state;
    this.epoch = plan.number();
    this.output = plan.output();
    this.plan = plan;
    this.few = few;
    this.many = many;
  }

  private static List<Dependency<?>> depends(RDD<?> many) {
    return many == null ? List.of() : List.of(new OneToOneDependency<>(many));
  }

  @Override
  public Partition[] getPartitions() {
    Partition[] out = new Partition[plan.partitions()];
    for (int i = 0; i < out.length; i++) {
      String name = plan.state().isEmpty() ? null : plan.state().get(i);
      out[i] = new Piece(i, name, few == null ? null : few[i], many == null ? null : many.partitions()[i]);
    }
    return out;
  }

  @Override
  public scala.collection.immutable.Seq<String> getPreferredLocations(Partition split) {
    return Nodes.list(state.places(split.index()));
  }

  @Override
  public scala.collection.Iterator<EpochLoop.Done> compute(Partition split, TaskContext context) {
    Piece piece = (Piece) split;
    Groups groups = piece.rows != null ? Groups.few(piece.rows) : Groups.many(shuffled(piece.shuffled, context));
    try (PackedOutput.Task out = output.task()) {
      return scala.collection.Iterator$.MODULE$.single(work(piece, groups, out));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private scala.collection.Iterator<InternalRow> shuffled(Partition split, TaskContext context) {
    @SuppressWarnings({"unchecked", "rawtypes"})
    scala.collection.Iterator<Tuple2<Object, InternalRow>> rows =
        ((RDD<Tuple2<Object, InternalRow>>) (RDD) firstParent(ROW)).iterator(split, context);
    return new AbstractIterator<>() {
      @Override
      public boolean hasNext() {
        return rows.hasNext();
      }

      @Override
      public InternalRow next() {
        return rows.next()._2();
      }
    };
  }

  private EpochLoop.Done work(Piece piece, Groups groups, PackedOutput.Task out) throws IOException {
    StoredState.Opened opened = state.open(piece.index, epoch, piece.name);
    boolean done = false;
    try {
      SlotStates states = new SlotStates(opened, sizes);
      table.sweeps().forEach(states::sweep);
      Members members = new Members(table.get(), states, out);
      groups.each(members::read);
      Written written = out.finish();
      String name = opened.commit();
      members.release();
      done = true;
      return new EpochLoop.Done(written, name);
    } finally {
      if (!done) {
        opened.abort();
        out.discard();
      }
    }
  }

  /** The members' code in one task. */
  private final class Members {
    private final HostTable host;
    private final SlotStates states;
    private final PackedOutput.Task out;
    private final Map<Integer, GroupCode> codes = new HashMap<>();

    Members(HostTable host, SlotStates states, PackedOutput.Task out) {
      this.host = host;
      this.states = states;
      this.out = out;
    }

    void read(int slot, byte[] key, Iterator<byte[]> rows) {
      MemberErrors.begin(errors, slot);
      try {
        GroupCode code = codes.get(slot);
        if (code == null) {
          HostTable.Entry entry = host.entry(slot);
          if (entry == null) {
            return;
          }
          code = HostTable.borrow(entry.groups, entry, GroupCode::new);
          code.enter(slot, states);
          codes.put(slot, code);
        }
        code.apply(key, rows, row -> out.write(slot, row));
      } catch (Exception | LinkageError | StackOverflowError e) {
        throw MemberFailed.of(slot, e);
      } finally {
        MemberErrors.end();
      }
    }

    /** Hands the code on to the tasks of the next epoch. */
    void release() {
      codes.forEach((slot, code) -> {
        code.leave();
        HostTable.Entry entry = host.entry(slot);
        if (entry != null) {
          entry.groups.addFirst(code);
        }
      });
    }
  }
}
