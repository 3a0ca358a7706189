package dev.penstock.kernel.join;

import org.apache.spark.sql.Row;

/** A row of {@link JoinPlan#INPUT} that came in a {@link Bundle}. Its numbers are not boxed. */
final class BundledRow implements Row {
  private static final long serialVersionUID = 1L;

  private final byte[] key;
  private final int flags;
  private final long time;
  private final long sequence;
  private final long count;
  private final byte[] row;
  private final long lsn;
  private final long before;
  private final boolean moments;

  BundledRow(
      byte[] key, int flags, long time, long sequence, long count, byte[] row, long lsn, long before, boolean moments) {
    this.key = key;
    this.flags = flags;
    this.time = time;
    this.sequence = sequence;
    this.count = count;
    this.row = row;
    this.lsn = lsn;
    this.before = before;
    this.moments = moments;
  }

  @Override
  public int length() {
    return moments ? JoinPlan.BEFORE + 1 : JoinPlan.LSN;
  }

  @Override
  public boolean isNullAt(int i) {
    return switch (i) {
      case JoinPlan.TIME -> (flags & Bundle.NO_TIME) != 0;
      case JoinPlan.LSN -> (flags & Bundle.HAS_LSN) == 0;
      case JoinPlan.BEFORE -> (flags & Bundle.HAS_BEFORE) == 0;
      default -> false;
    };
  }

  @Override
  public int getInt(int i) {
    if (i != JoinPlan.SIDE) {
      throw new IllegalArgumentException("column " + i + " is not an INT");
    }
    return flags & Bundle.SIDE;
  }

  @Override
  public long getLong(int i) {
    if (isNullAt(i)) {
      throw new NullPointerException("column " + i + " is NULL");
    }
    return switch (i) {
      case JoinPlan.TIME -> time;
      case JoinPlan.SEQUENCE -> sequence;
      case JoinPlan.WEIGHT -> count;
      case JoinPlan.LSN -> lsn;
      case JoinPlan.BEFORE -> before;
      default -> throw new IllegalArgumentException("column " + i + " is not a BIGINT");
    };
  }

  @Override
  public Object get(int i) {
    return switch (i) {
      case JoinPlan.KEY -> key;
      case JoinPlan.SIDE -> getInt(i);
      case JoinPlan.ROW -> row;
      default -> isNullAt(i) ? null : (Object) getLong(i);
    };
  }

  @Override
  public Row copy() {
    return this;
  }
}
