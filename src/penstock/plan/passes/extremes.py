"""Replaces a join of rows with the MIN or MAX of their own window: it only selects the rows that have that value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from penstock.plan.nodes import (
    Aggregate,
    EmitMode,
    Expr,
    Extremes,
    Interval,
    Join,
    Named,
    Node,
    Project,
    WindowAssign,
    col,
)
from penstock.plan.passes.rebuild import transform
from penstock.plan.predicates import deterministic, filtered, replaced, split
from penstock.plan.repeats import same


def window_extremes(root: Node) -> Node:
    """Turns such joins into Extremes, which keeps only the extreme rows; the join would keep all rows of all open windows."""
    return transform(root, _change)


def _change(node: Node) -> Node:
    if not isinstance(node, Join) or node.kind != "inner" or node.null_safe or node.ttl_ms is not None:
        return node
    for rows, tops in ((node.left, node.right), (node.right, node.left)):
        agg, names = _renamed(tops)
        if isinstance(agg, Aggregate) and _closes(agg):
            made = _of_window_rows(node, rows, agg, names) or _of_rows(node, rows, agg, names)
            if made is not None:
                return made
    return node


def _renamed(node: Node) -> tuple[Node, dict[str, str]]:
    """The node below projections, and a map from columns of `node` to its columns, for those that are only renamed."""
    names = {c: c for c in node.columns}
    while isinstance(node, Project):
        below = {i.name: i.expr.column for i in node.items}
        names = {c: b for c, x in names.items() if (b := below[x]) is not None}
        node = node.child
    return node, names


def _closes(agg: Aggregate) -> bool:
    """True for a single MIN or MAX per window (and perhaps more keys) that is emitted when the window closes."""
    if agg.mode is not EmitMode.CLOSE or agg.window_end is None or agg.late_to is not None or len(agg.aggs) != 1:
        return False
    call = agg.aggs[0]
    if call.func not in ("min", "max") or call.distinct or call.filter is not None:
        return False
    columns = {k.name: k.expr.column for k in agg.keys}
    timed = {t.column for t in agg.child.times}
    return None not in columns.values() and columns[agg.window_end] in timed and not agg.child.changelog


@dataclass(frozen=True)
class _Place:
    """The node that provides the rows of the aggregate's input; `columns` maps the input's column names to its own."""

    child: Node
    columns: Mapping[str, str]
    windows: frozenset[str]
    """Window bounds, which are never NULL."""
    inside: tuple[str, ...] = ()
    size_ms: int = 0


def _of_window_rows(join: Join, rows: Node, agg: Aggregate, names: Mapping[str, str]) -> Node | None:
    """The joined rows are the aggregate's own input, and have a window column."""
    base, mine = _renamed(rows)
    other, theirs = _renamed(agg.child)
    if not same(base, other):
        return None
    back = {b: c for c, b in mine.items()}
    at = dict(zip(other.columns, base.columns, strict=True))
    columns = {c: back[at[o]] for c, o in theirs.items() if at[o] in back}
    ends = frozenset(columns[c] for c in agg.child.window_ends if c in columns)
    bound = join.time_bound
    if bound is not None:
        pair = {bound.left_time.column, bound.right_time.column}
        tied = any(
            {columns.get(k.expr.column or ""), t} == pair for k in agg.keys for t, n in names.items() if n == k.name
        )
        if not tied or bound.lower_ms > 0 or bound.upper_ms < 0:
            return None
    return _extremes(join, rows, agg, names, _Place(rows, columns, ends), _conditions(join))


def _of_rows(join: Join, rows: Node, agg: Aggregate, names: Mapping[str, str]) -> Node | None:
    """The rows are joined on the end of the TUMBLE window that contains their time."""
    window, above = _renamed(agg.child)
    bound = join.time_bound
    if not isinstance(window, WindowAssign) or window.kind != "tumble" or window.time.column is None or bound is None:
        return None
    base, mine = _renamed(rows)
    other, theirs = _renamed(window.child)
    size = window.size.micros // 1000
    if not same(base, other) or window.size != Interval(micros=size * 1000):
        return None
    back = {b: c for c, b in mine.items()}
    at = dict(zip(other.columns, base.columns, strict=True))
    columns = {c: back[at[o]] for c, o in theirs.items() if at[o] in back}
    time = columns.get(window.time.column)
    ends = [
        t for t, n in names.items() for k in agg.keys if n == k.name and above.get(k.expr.column or "") == window.end
    ]
    from_left = rows is join.left
    times = (bound.left_time.column, bound.right_time.column)
    mine_time, end = times if from_left else times[::-1]
    lower, upper = (bound.lower_ms, bound.upper_ms) if from_left else (-bound.upper_ms, -bound.lower_ms)
    if time is None or mine_time != time or end not in ends or (lower, upper) != (0, size):
        return None
    conditions = _conditions(join)
    if not _take(conditions, _compared(col(time), col(end), (exp.LT, exp.GT))):
        return None
    made = replace(window, child=rows, time=col(time))
    within = {window.start: window.start, window.end: window.end}
    known = {c: (columns | within)[w] for c, w in above.items() if w in columns or w in within}
    place = _Place(made, known, frozenset(within), (time, window.start), size)
    return _extremes(join, rows, agg, names, place, conditions)


def _conditions(join: Join) -> list[Expr]:
    """All join conditions except the time bound."""
    equal = [_pair(exp.EQ, a, b) for a, b in zip(join.left_keys, join.right_keys, strict=True)]
    return equal + (split(join.residual) if join.residual is not None else [])


def _pair(kind: type[exp.Expression], a: Expr, b: Expr) -> Expr:
    return Expr(kind(this=a.node.copy(), expression=b.node.copy()))


def _take(conditions: list[Expr], forms: tuple[Expr, ...]) -> bool:
    """Removes a condition of one of these forms. Returns False if there is none."""
    for c in conditions:
        if c in forms:
            conditions.remove(c)
            return True
    return False


def _compared(a: Expr, b: Expr, *kinds: tuple[type[exp.Expression], type[exp.Expression]]) -> tuple[Expr, ...]:
    """Each comparison of a with b, written both ways."""
    forms: list[Expr] = []
    for one, other in kinds:
        forms += [_pair(one, a, b), _pair(other, b, a)]
    return tuple(forms)


def _extremes(
    join: Join, rows: Node, agg: Aggregate, names: Mapping[str, str], place: _Place, conditions: list[Expr]
) -> Node | None:
    call, (value,) = agg.aggs[0], agg.aggs[0].args
    if not deterministic(value) or not value.refs <= place.columns.keys():
        return None
    value = replaced(value, {c: col(n) for c, n in place.columns.items()})
    least = call.func == "min"
    outer = (exp.LTE, exp.GTE) if least else (exp.GTE, exp.LTE)
    outputs: dict[str, Expr] = {}
    keys: dict[str, str] = {}
    for key in agg.keys:
        mine = place.columns.get(key.expr.column or "")
        if mine is None:
            return None
        keys[key.name] = mine
    for name, source in names.items():
        outputs[name] = value if source == call.name else col(keys[source])
    tops = [n for n, source in names.items() if source == call.name]
    if not any(_take(conditions, _compared(value, col(t), (exp.EQ, exp.EQ), outer)) for t in tops):
        return None
    own = frozenset(rows.columns)
    for key in agg.keys:
        if keys[key.name] in own:
            ties = (n for n, source in names.items() if source == key.name)
            if not any(_take(conditions, _compared(col(keys[key.name]), col(t), (exp.EQ, exp.EQ))) for t in ties):
                return None
    unknown = [c for c in join.columns if c not in own and c not in outputs]
    if unknown:
        return None
    child = filtered(place.child, [_there(k) for k in keys.values() if k not in place.windows])
    made: Node = Extremes(
        child,
        tuple(keys.values()),
        value,
        least,
        keys[agg.window_end or ""],
        agg.lateness_ms,
        place.inside,
        place.size_ms,
    )
    items = tuple(Named(c, col(c) if c in own else outputs[c]) for c in join.columns)
    return filtered(Project(made, items), conditions)


def _there(column: str) -> Expr:
    return Expr(exp.Not(this=exp.Is(this=col(column).node, expression=exp.Null())))
