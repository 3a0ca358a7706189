package dev.penstock.kernel.state;

/**
 * When a row came that is behind the watermark: its commit, and the watermark in force then. What becomes of such a row depends on what came before it, so
 * operators take these rows commit by commit. Rows that are not behind the watermark share {@link #ON_TIME}: the order in which they come
 * changes nothing, and they go first.
 */
public record Moment(long lsn, long watermark) implements Comparable<Moment> {
  public static final Moment ON_TIME = new Moment(Long.MIN_VALUE, Long.MIN_VALUE);

  /** The moment in two columns, the first of which is NULL for rows that are on time. */
  public static Moment of(Long lsn, Long watermark) {
    return lsn == null ? ON_TIME : new Moment(lsn, watermark);
  }

  @Override
  public int compareTo(Moment other) {
    int c = Long.compare(lsn, other.lsn);
    // A commit of a stream holds rows of several moments of the stream's own job.
    return c != 0 ? c : Long.compare(watermark, other.watermark);
  }
}
