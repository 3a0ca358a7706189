"""The state that each operator keeps between epochs, and the cost of one epoch.

`diff` is the number of input rows of the epoch, `n` the number of rows kept for their keys, `matches` the number of rows on the other side
with the same key.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.plan.functions import Keeps
from penstock.plan.nodes import (
    AggCall,
    Aggregate,
    Analytic,
    AsofJoin,
    Distinct,
    EmitMode,
    Extremes,
    Filter,
    Join,
    LookupJoin,
    Node,
    ProbeJoin,
    Project,
    Recursive,
    SetOp,
    TemporalFilter,
    TemporalJoin,
    TopN,
    Values,
)


@dataclass(frozen=True)
class Cost:
    """`keeps` is None for operators without state."""

    keeps: str | None
    work: str


LINEAR = Cost(None, "O(diff)")


def cost(node: Node) -> Cost:
    """The state and the cost of one node."""
    match node:
        case Aggregate(session=None):
            return _aggregate(node)
        case Aggregate():
            held = "the rows of open sessions" if node.child.changelog else "the open sessions"
            return Cost(f"{held} of each key", "O(sessions of the key)")
        case Extremes():
            return Cost("the extreme rows per group until its window closes", "O(diff)")
        case Distinct() | TopN() | Analytic() if node.at_once:
            return Cost(None, "O(diff)" if isinstance(node, Distinct) else "O(partition)")
        case Distinct():
            return Cost("a count of each row" if node.child.changelog else "each row once", "O(diff)")
        case Recursive():
            return Cost("all rows with their derivations, rows of the step's other side", "O(changed rows · matches)")
        case SetOp():
            return Cost("two counts of each row", "O(diff)")
        case TemporalFilter():
            return Cost("rows that will still enter or leave", "O(diff · log n)")
        case TopN():
            return _top_n(node)
        case Analytic():
            return Cost("the rows of each partition with their results", "O(partition)")
        case Join():
            return _join(node)
        case LookupJoin():
            return Cost("the rows of the lookup table", "O(diff)")
        case AsofJoin():
            waiting = "" if node.eager else ", pending left rows"
            answers = ", emitted results" if node.left.changelog else ""
            return Cost(f"right rows that can still be the nearest{waiting}{answers}", "O(diff · log n)")
        case TemporalJoin():
            answers = ", emitted results" if node.left.changelog else ""
            return Cost(f"the versions of the right rows{answers}", "O(diff · log n)")
        case ProbeJoin():
            return Cost("right rows that a probe can still reach, pending left rows", "O(diff · offsets · log n)")
    return LINEAR


def _aggregate(node: Aggregate) -> Cost:
    until = " until its window closes" if node.window_end is not None and node.mode is EmitMode.CLOSE else ""
    group = f"a row per group{until}" if node.keys else "one row"
    whole = [a for a in node.aggs if a.recomputed or (a.function.keeps is Keeps.WHOLE and not a.distinct)]
    values = {Keeps.CANDIDATES, Keeps.DIFFERENT} if node.child.changelog else set()
    if node.mode is EmitMode.CHANGES:
        values.add(Keeps.DIFFERENT)
    ordered = [a for a in node.aggs if a not in whole and (a.distinct or a.function.keeps in values)]
    held = f"; the values of {', '.join(_call(a) for a in (*whole, *ordered))}" if whole or ordered else ""
    return Cost(group + held, "O(group)" if whole else "O(diff · log n)" if ordered else "O(diff)")


def _call(call: AggCall) -> str:
    return f"{call.func}{'(distinct)' if call.distinct else ''}{' (recomputed by Spark)' if call.recomputed else ''}"


def _top_n(node: TopN) -> Cost:
    where = " of each partition" if node.partition else ""
    if node.limit is None:
        return Cost(f"all rows{where}, in order", "O(diff · log n)")
    reach = node.offset + node.limit
    if node.child.changelog:
        return Cost(f"all rows{where}, in order", f"O(diff · log n + {reach})")
    return Cost(f"the first {reach} rows{where}", f"O(diff · log n + {reach})")


def _join(node: Join) -> Cost:
    if node.keyless and not _single(node.left) and not _single(node.right):
        kept = "until the watermark has passed them" if node.time_bound is not None else "in one partition"
        return Cost(f"rows of both sides {kept}", "O(diff · all rows of the other side)")
    if node.time_bound is not None:
        return Cost("rows of both sides until the watermark has passed them", "O(diff · (log n + matches))")
    return Cost(f"rows of both sides by key{' until they expire' if node.ttl_ms else ''}", "O(diff · matches)")


def _single(node: Node) -> bool:
    """Whether a side has one row, like a total."""
    while isinstance(node, Project | Filter):
        node = node.child
    return isinstance(node, Values) or (isinstance(node, Aggregate) and not node.keys)
