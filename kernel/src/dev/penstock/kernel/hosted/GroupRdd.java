package dev.penstock.kernel.hosted;

import dev.penstock.kernel.error.ErrorChannel;
import dev.penstock.kernel.node.Nodes;
import dev.penstock.kernel.state.SlotSizes;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
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

/** The pieces of a {@link GroupTask} as Spark tasks. */
final class GroupRdd extends RDD<GroupTask.Done> {
  private static final long serialVersionUID = 1L;
  private static final ClassTag<InternalRow> ROW = ClassTag$.MODULE$.apply(InternalRow.class);

  private final GroupTask task;
  private final ErrorChannel errors;
  private final SlotSizes sizes;
  private final transient List<GroupTask.Piece> pieces;

  /** @param many the shuffled rows; null if there are none */
  GroupRdd(
      SparkContext spark, GroupTask task, ErrorChannel errors, SlotSizes sizes, List<GroupTask.Piece> pieces,
      RDD<Tuple2<Object, InternalRow>> many) {
    super(spark, Nodes.list(depends(many)), ClassTag$.MODULE$.apply(GroupTask.Done.class));
    this.task = task;
    this.errors = errors;
    this.sizes = sizes;
    this.pieces = pieces;
  }

  private static List<Dependency<?>> depends(RDD<?> many) {
    return many == null ? List.of() : List.of(new OneToOneDependency<>(many));
  }

  @Override
  public Partition[] getPartitions() {
    return pieces.toArray(new Partition[0]);
  }

  @Override
  public scala.collection.immutable.Seq<String> getPreferredLocations(Partition split) {
    return Nodes.list(task.places((GroupTask.Piece) split));
  }

  @Override
  public scala.collection.Iterator<GroupTask.Done> compute(Partition split, TaskContext context) {
    GroupTask.Piece piece = (GroupTask.Piece) split;
    Groups groups = piece.rows() != null ? Groups.of(piece.rows()) : Groups.many(shuffled(piece.shuffled(), context));
    try {
      return scala.collection.Iterator$.MODULE$.single(task.work(piece, groups, errors, sizes));
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
}
