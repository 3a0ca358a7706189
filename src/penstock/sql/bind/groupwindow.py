"""The window of a GROUP BY: moved from the keys to below the aggregate, and identified for closing."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.dialect import DIALECT
from penstock.plan.nodes import Aggregate, Named, Node, SessionWindow, WindowAssign, col
from penstock.sql.bind.draft import Draft, Items
from penstock.sql.bind.exprs import to_expr, type_of, walk_block
from penstock.sql.bind.scope import Col, Relation
from penstock.sql.bind.windows import struct_spec, struct_time, window_kind, window_spec
from penstock.sql.functions import struct_window


def _is_window(node: exp.Expression) -> bool:
    return window_kind(node) is not None or struct_window(node) is not None


class GroupWindow:
    """The window of a GROUP BY. Extends the draft by its WindowAssign; a session is part of the aggregate."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.session: SessionWindow | None = None

    def assign(self, plain: list[exp.Expression], sets: list[list[exp.Expression]] | None) -> list[Named]:
        """Removes the window call from the keys and adds its WindowAssign (or session) to the plan. Returns the keys in its place."""
        calls = [n for n in plain if _is_window(n)]
        if any(_is_window(n) for one in sets or [] for n in one):
            raise self.draft.ctx.fail(
                "PSK-2003",
                "a window is not allowed inside GROUPING SETS, ROLLUP or CUBE",
                self.draft.select,
                hint="Add it to GROUP BY as a separate key.",
            )
        texts = {c.sql() for c in calls}
        if len(texts) > 1:
            raise self.draft.ctx.fail("PSK-2003", "GROUP BY has two windows", calls[1])
        if not calls:
            return []
        call = calls[0]
        plain[:] = [n for n in plain if not _is_window(n)]
        assert isinstance(call, exp.Anonymous)
        kind, struct = window_kind(call), struct_window(call)
        if not call.expressions:
            shown = f"{struct}()" if struct is not None else (kind or "").upper()
            raise self.draft.ctx.fail("PSK-2003", f"{shown} needs a time column and an interval", call)
        time = self.draft.binder().bind(call.expressions[0])
        if kind is not None:
            spec = window_spec(self.draft.ctx, kind, time, list(call.expressions[1:]), call)
        else:
            time = struct_time(self.draft.ctx, time)
            spec = struct_spec(self.draft.ctx, time, call)
        prefix = self.draft.ctx.fresh("window")
        start, end = f"{prefix}$start", f"{prefix}$end"
        known = type_of(self.draft.ctx, time)
        if known is not None:
            self.draft.ctx.types[start] = self.draft.ctx.types[end] = known
        self.draft.window = (spec, start, end)
        self.draft.window_call = call.sql(dialect=DIALECT) if struct is not None else None
        # In a windowed query, window_start and window_end are its own bounds; table columns of that name must be qualified.
        own = ("window_start", "window_end") if struct is None else (struct,)
        shadowed = frozenset(
            c.internal for c in self.draft.scope.visible() if c.name.lower() in own and not self._is_key(c, plain)
        )
        self.draft.scope.relations = [r.hide(shadowed) for r in self.draft.scope.relations]
        if struct is None:
            made = Relation(None, (Col("window_start", start), Col("window_end", end)))
        else:
            made = Relation(struct, (Col("start", start, hidden=True), Col("end", end, hidden=True)), window=True)
        self.draft.scope.relations.append(made)
        if spec.kind == "session":
            self.session = SessionWindow(to_expr(self.draft.ctx, time), spec.size, start, end)
            return []
        self.draft.node = WindowAssign(
            self.draft.node, spec.kind, to_expr(self.draft.ctx, time), spec.size, spec.step, spec.offset, start, end
        )
        return [Named(start, col(start)), Named(end, col(end))]

    def spread(self, items: Items) -> None:
        """window() in a SELECT without groups: each row once for each of its windows."""
        calls = [n for core, _ in items for n in walk_block(core) if struct_window(n) is not None]
        if not calls:
            return
        if struct_window(calls[0]) == "session_window":
            raise self.draft.ctx.fail(
                "PSK-2003",
                "session_window() belongs into GROUP BY",
                calls[0],
                hint="A session is made of the rows of a group.",
            )
        self.assign(calls, None)

    def _is_key(self, c: Col, plain: list[exp.Expression]) -> bool:
        return any(isinstance(n, exp.Column) and not n.table and n.name.lower() == c.name.lower() for n in plain)

    def session_keys(self) -> list[Named]:
        if self.session is None:
            return []
        return [Named(n, col(n)) for n in (self.session.start, self.session.end)]

    def _assigned(self) -> list[WindowAssign]:
        """Window assignments below, not counting those under an aggregate."""
        out: list[WindowAssign] = []
        stack: list[Node] = [self.draft.node]
        while stack:
            n = stack.pop()
            if isinstance(n, WindowAssign):
                out.append(n)
            if not isinstance(n, Aggregate):
                stack.extend(n.children)
        return out

    def hidden_end(self, keys: list[Named]) -> list[Named]:
        """Adds window_end if only the window_start of a table function is a key, so that the group can close."""
        named = {k.expr.column for k in keys}
        for w in self._assigned():
            if w.start in named and w.end not in named and w.kind != "cumulate" and w.end in self.draft.node.columns:
                return [Named(w.end, col(w.end))]
        return []

    def closing_key(self, keys: list[Named]) -> str | None:
        """The key that holds a window end, of a window assigned here or by a query below."""
        timed = {t.column for t in self.draft.node.times}
        ends = self.draft.node.window_ends
        return next((k.name for k in keys if k.expr.column in ends and k.expr.column in timed), None)
