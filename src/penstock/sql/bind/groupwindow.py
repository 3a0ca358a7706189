"""The window of a GROUP BY: moved from the keys to below the aggregate, and identified for closing."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.nodes import Aggregate, Named, Node, SessionWindow, WindowAssign, col
from penstock.sql.bind.draft import BlockDraft, Items
from penstock.sql.bind.exprs import to_expr, type_of
from penstock.sql.bind.scope import Col, Relation
from penstock.sql.bind.windows import window_kind, window_spec


class GroupWindow(BlockDraft):
    def _windows(
        self, plain: list[exp.Expression], sets: list[list[exp.Expression]] | None, items: Items
    ) -> list[Named]:
        """Removes the window call from the keys and adds its WindowAssign (or session) to the plan."""
        calls = [n for n in plain if window_kind(n)]
        if any(window_kind(n) for one in sets or [] for n in one):
            raise self.ctx.fail(
                "PSK-2003",
                "a window is not allowed inside GROUPING SETS, ROLLUP or CUBE",
                self.select,
                hint="Add it to GROUP BY as a separate key.",
            )
        texts = {c.sql() for c in calls}
        if len(texts) > 1:
            raise self.ctx.fail("PSK-2003", "GROUP BY has two windows", calls[1])
        if not calls:
            return []
        call = calls[0]
        plain[:] = [n for n in plain if not window_kind(n)]
        kind = window_kind(call)
        assert kind is not None
        if not call.expressions:
            raise self.ctx.fail("PSK-2003", f"{kind.upper()} needs a time column and an interval", call)
        time = self._binder().bind(call.expressions[0])
        spec = window_spec(self.ctx, kind, time, list(call.expressions[1:]), call)
        prefix = self.ctx.fresh("window")
        start, end = f"{prefix}$start", f"{prefix}$end"
        known = type_of(self.ctx, time)
        if known is not None:
            self.ctx.types[start] = self.ctx.types[end] = known
        self.window = (spec, start, end)
        # In a windowed query, window_start and window_end are its own bounds; table columns of that name must be qualified.
        shadowed = frozenset(
            c.internal
            for c in self.scope.visible()
            if c.name.lower() in ("window_start", "window_end") and not self._is_key(c, plain)
        )
        self.scope.relations = [r.hide(shadowed) for r in self.scope.relations]
        self.scope.relations.append(Relation(None, (Col("window_start", start), Col("window_end", end))))
        if spec.kind == "session":
            self.session = SessionWindow(to_expr(self.ctx, time), spec.size, start, end)
            return []
        self.node = WindowAssign(
            self.node, spec.kind, to_expr(self.ctx, time), spec.size, spec.step, spec.offset, start, end
        )
        return [Named(start, col(start)), Named(end, col(end))]

    def _is_key(self, c: Col, plain: list[exp.Expression]) -> bool:
        return any(isinstance(n, exp.Column) and not n.table and n.name.lower() == c.name.lower() for n in plain)

    def _session_keys(self) -> list[Named]:
        if self.session is None:
            return []
        return [Named(n, col(n)) for n in (self.session.start, self.session.end)]

    def _assigned(self) -> list[WindowAssign]:
        """Window assignments below, not counting those under an aggregate."""
        out: list[WindowAssign] = []
        stack: list[Node] = [self.node]
        while stack:
            n = stack.pop()
            if isinstance(n, WindowAssign):
                out.append(n)
            if not isinstance(n, Aggregate):
                stack.extend(n.children)
        return out

    def _hidden_end(self, keys: list[Named]) -> list[Named]:
        """Adds window_end if only the window_start of a table function is a key, so that the group can close."""
        named = {k.expr.column for k in keys}
        for w in self._assigned():
            if w.start in named and w.end not in named and w.kind != "cumulate" and w.end in self.node.columns:
                return [Named(w.end, col(w.end))]
        return []

    def _window_end(self, keys: list[Named]) -> str | None:
        """The key that holds a window end, of a window assigned here or by a query below."""
        timed = {t.column for t in self.node.times}
        ends = self.node.window_ends
        return next((k.name for k in keys if k.expr.column in ends and k.expr.column in timed), None)
