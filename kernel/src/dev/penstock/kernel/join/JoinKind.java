package dev.penstock.kernel.join;

/** What a join emits for pairs of matching rows and for single rows. */
enum JoinKind {
  INNER(true, Alone.NEVER, Alone.NEVER),
  LEFT(true, Alone.UNMATCHED, Alone.NEVER),
  RIGHT(true, Alone.NEVER, Alone.UNMATCHED),
  FULL(true, Alone.UNMATCHED, Alone.UNMATCHED),
  SEMI(false, Alone.MATCHED, Alone.NEVER),
  ANTI(false, Alone.UNMATCHED, Alone.NEVER),
  /** Every left row, with a flag that says whether it has a match. */
  MARK(false, Alone.MARKED, Alone.NEVER);

  /** When a row of one side is emitted alone. */
  enum Alone {
    NEVER,
    MATCHED,
    UNMATCHED,
    MARKED;

    /** Whether a row that cannot match anything is emitted. */
    boolean unmatched() {
      return this == UNMATCHED || this == MARKED;
    }

    /** The weight of a single row in the result, apart from its mark. */
    long weight(long weight, long matches) {
      return switch (this) {
        case NEVER, MARKED -> 0;
        case MATCHED -> matches != 0 ? weight : 0;
        case UNMATCHED -> matches == 0 ? weight : 0;
      };
    }
  }

  final boolean pairs;
  final Alone left;
  final Alone right;

  JoinKind(boolean pairs, Alone left, Alone right) {
    this.pairs = pairs;
    this.left = left;
    this.right = right;
  }

  static JoinKind of(JoinSpec spec) {
    return valueOf(spec.oneOf("kind", "inner", "left", "right", "full", "semi", "anti", "mark").toUpperCase());
  }
}
