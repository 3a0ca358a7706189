"""EMIT, ALLOW LATENESS and LATE DATA TO over a bound plan."""

from __future__ import annotations

from dataclasses import replace

from penstock.catalog.objects import Role
from penstock.plan.nodes import Aggregate, Analytic, Emit, EmitMode, Node, TopN, WindowAssign
from penstock.plan.passes.rebuild import transform
from penstock.sql import intervals
from penstock.sql.bind.context import Context


def apply_emit(ctx: Context, root: Node) -> tuple[Node, Emit]:
    """The plan with modes and lateness set, and the Emit of the query."""
    query = ctx.query
    clause = query.emit
    root = _lateness(ctx, root)
    if clause is None:
        return root, Emit("changes" if root.changelog else "append")
    if clause.kind in ("close", "final"):
        if clause.kind == "final" and query.lateness is not None:
            raise ctx.fail("PSK-2006", "EMIT FINAL cannot be combined with ALLOW LATENESS", offset=clause.offset)
        return _closing(ctx, root, clause.offset), Emit("close")
    if clause.kind == "every":
        return root, Emit("every", clause.every)
    return root, Emit("update" if clause.kind == "update" else "changes")


def _has_window(agg: Aggregate) -> bool:
    """True if the group has a window of any kind, even one without a watermark."""
    if agg.windowed:
        return True
    stack: list[Node] = list(agg.children)
    keys = {k.expr.column for k in agg.keys}
    while stack:
        n = stack.pop()
        if isinstance(n, WindowAssign) and n.end in keys:
            return True
        if not isinstance(n, Aggregate):
            stack.extend(n.children)
    return False


def _aggregates(ctx: Context, root: Node, what: str, offset: int | None) -> list[Aggregate]:
    found = [n for n in root.walk() if isinstance(n, Aggregate)]
    windowed = [a for a in found if _has_window(a)]
    if not windowed:
        raise ctx.fail("PSK-2005", f"{what} needs a windowed aggregate, and this query has none", offset=offset)
    if any(not a.windowed for a in windowed):
        raise ctx.fail("PSK-2004", f"{what}: the window's time column has no watermark", offset=offset)
    return found


def _closing(ctx: Context, root: Node, offset: int) -> Node:
    found = _aggregates(ctx, root, "EMIT ON WINDOW CLOSE", offset)
    if any(not a.windowed for a in found):
        raise ctx.fail("PSK-2005", "EMIT ON WINDOW CLOSE: an aggregate without a window never closes", offset=offset)
    for n in root.walk():
        if isinstance(n, (TopN, Analytic)):
            times = {t.column for t in n.child.times}
            if not any(p.column in times for p in n.partition):
                raise ctx.fail(
                    "PSK-2005",
                    "EMIT ON WINDOW CLOSE: this ORDER BY spans all windows",
                    hint="Add window_start to PARTITION BY, or use EMIT CHANGES.",
                    offset=offset,
                )
    closing = transform(root, lambda n: replace(n, mode=EmitMode.CLOSE) if isinstance(n, Aggregate) else n)
    for n in closing.walk():
        if isinstance(n, Aggregate) and n.child.waits and not n.child.punctual:
            raise ctx.fail(
                "PSK-1012",
                "EMIT ON WINDOW CLOSE: this aggregate reads a join that itself waits for the watermark",
                hint="Create a stream for the join, and aggregate that.",
                offset=offset,
            )
    return closing


def _lateness(ctx: Context, root: Node) -> Node:
    query = ctx.query
    if query.lateness is None and query.late_to is None:
        return root
    found = [
        a for a in _aggregates(ctx, root, "ALLOW LATENESS" if query.lateness else "LATE DATA TO", None) if a.windowed
    ]
    if query.lateness is not None:
        ms = intervals.millis(query.lateness)
        if ms is None or ms < 0:
            raise ctx.fail("PSK-2008", "ALLOW LATENESS must be whole milliseconds, not months")
        root = transform(root, lambda n: replace(n, lateness_ms=ms) if isinstance(n, Aggregate) and n.windowed else n)
    if query.late_to is not None:
        if len(found) > 1:
            raise ctx.fail("PSK-1012", "LATE DATA TO with more than one windowed aggregate is not supported")
        there = ctx.catalog.get(query.late_to)
        # A stored query is bound again when its database is opened; its side stream already exists then.
        if there is not None and there.role is not Role.LATE_ROWS:
            raise ctx.fail("PSK-1003", f"{query.late_to} already exists", hint="LATE DATA TO names a new stream.")
        late = query.late_to
        root = transform(root, lambda n: replace(n, late_to=late) if isinstance(n, Aggregate) and n.windowed else n)
    return root
