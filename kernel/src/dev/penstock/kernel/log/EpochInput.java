package dev.penstock.kernel.log;

import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** The input of an epoch, or of one of its tasks, from one object. */
public final class EpochInput implements Serializable {
  private static final long serialVersionUID = 1L;

  private final int object;
  private final StructType schema;
  private final int columns;
  private final ArrayList<LogSlice> slices;

  /**
   * @param schema all columns of the object, then those computed on reading
   * @param columns the number of stored columns
   */
  EpochInput(int object, StructType schema, int columns, List<LogSlice> slices) {
    this.object = object;
    this.schema = schema;
    this.columns = columns;
    this.slices = new ArrayList<>(slices);
  }

  public int object() {
    return object;
  }

  public List<String> columns() {
    return List.of(schema.fieldNames());
  }

  public long rows() {
    return slices.stream().mapToLong(slice -> slice.rows).sum();
  }

  /** The size of the rows in the log. */
  public long bytes() {
    return slices.stream().mapToLong(slice -> slice.length).sum();
  }

  /** Splits it into at most {@code n} pieces of about the same number of rows. Few rows stay together; no rows give no piece. */
  public List<EpochInput> spread(int n) {
    return LogSlice.spread(slices, n).stream().map(some -> new EpochInput(object, schema, columns, some)).toList();
  }

  /** The batches, each valid until the next one is fetched. */
  public Batches open() {
    return new Batches(
        new LogReaderFactory(schema, schema, columns).createColumnarReader(new LogPartition(slices, JobTime.NONE)));
  }

  /** Must be closed. */
  public static final class Batches implements Iterator<ColumnarBatch>, AutoCloseable {
    private final PartitionReader<ColumnarBatch> reader;
    private boolean looked;
    private boolean more;

    private Batches(PartitionReader<ColumnarBatch> reader) {
      this.reader = reader;
    }

    @Override
    public boolean hasNext() {
      if (!looked) {
        try {
          more = reader.next();
        } catch (IOException e) {
          throw new UncheckedIOException(e);
        }
        looked = true;
      }
      return more;
    }

    @Override
    public ColumnarBatch next() {
      if (!hasNext()) {
        throw new NoSuchElementException();
      }
      looked = false;
      return reader.get();
    }

    @Override
    public void close() {
      try {
        reader.close();
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }
}
