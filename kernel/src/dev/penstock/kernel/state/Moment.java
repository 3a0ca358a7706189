package dev.penstock.kernel.state;

/**
 * The arrival of a row behind the watermark: its commit, and the watermark in force then. The result for such a row depends on the rows before it, so
 * operators process these rows commit by commit. Rows that are not behind the watermark share {@link #ON_TIME}: their order
 * does not matter, and they are processed first.
 */
public record Moment(long lsn, long watermark) implements Comparable<Moment> {
  public static final Moment ON_TIME = new Moment(Long.MIN_VALUE, Long.MIN_VALUE);

  /** The moment from two columns; the first is NULL for rows that are on time. */
  public static Moment of(Long lsn, Long watermark) {
    return lsn == null ? ON_TIME : new Moment(lsn, watermark);
  }

  @Override
  public int compareTo(Moment other) {
    int c = Long.compare(lsn, other.lsn);
    // A commit of a stream contains rows of several moments of the stream's own job.
    return c != 0 ? c : Long.compare(watermark, other.watermark);
  }
}
