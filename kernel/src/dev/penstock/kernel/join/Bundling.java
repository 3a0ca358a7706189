package dev.penstock.kernel.join;

import dev.penstock.kernel.row.Adding;
import dev.penstock.kernel.row.RowCodec;
import java.util.Iterator;
import java.util.NoSuchElementException;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/** Collects the rows of a join in a shared job into {@link Bundle}s before the shuffle. */
final class Bundling implements Adding {
  private static final long serialVersionUID = 1L;
  /** Bytes that count as one row towards limits of buffered rows. */
  private static final int ROW = 64;

  @Override
  public Iterator<Row> call(Iterator<Row> rows) {
    throw new UnsupportedOperationException("rows are bundled one by one");
  }

  @Override
  public Table table() {
    return new Rows();
  }

  private static final class Rows implements Table {
    private final Bundles bundles = new Bundles();

    @Override
    public void add(Row row) {
      throw new UnsupportedOperationException("rows are bundled in Spark's form");
    }

    @Override
    public void add(InternalRow row, RowCodec codec) {
      bundles.add((UnsafeRow) row);
    }

    @Override
    public int size() {
      return (int) ((bundles.bytes() + ROW - 1) / ROW);
    }

    @Override
    public Iterator<Row> drain() {
      return new Iterator<>() {
        private boolean more = bundles.next();

        @Override
        public boolean hasNext() {
          return more;
        }

        @Override
        public Row next() {
          if (!more) {
            throw new NoSuchElementException();
          }
          Row bundle = RowFactory.create(bundles.key(), bundles.rows());
          more = bundles.next();
          return bundle;
        }
      };
    }
  }
}
