"""A SELECT block while it is bound: its plan so far, the names in scope, and the binder for its expressions."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from penstock.plan.dialect import DIALECT
from penstock.plan.nodes import Expr, Node
from penstock.sql.bind.aggregates import is_aggregate
from penstock.sql.bind.context import Context
from penstock.sql.bind.exprs import ExprBinder, Subquery, column
from penstock.sql.bind.relations import BindQuery, Ctes
from penstock.sql.bind.scope import Scope
from penstock.sql.bind.structs import window_struct
from penstock.sql.bind.subqueries import Subqueries
from penstock.sql.bind.windows import WindowSpec, bound_of, struct_spec, struct_time, window_kind, window_spec
from penstock.sql.functions import is_now, struct_window

Items = list[tuple[exp.Expression, str]]


class BlockExprs(ExprBinder):
    """Also binds the window calls of a windowed query, and refuses now(). `inside` handles subqueries inside aggregates."""

    window: tuple[WindowSpec, str, str] | None = None
    call: str | None = None
    """The window of GROUP BY as it was written, if its value is a struct."""
    inside: Subquery | None = None
    joined: Mapping[exp.Expression, exp.Expression] = {}
    """Expressions whose subqueries are in the plan already, and what they are bound to."""

    def _bind(self, node: exp.Expression) -> exp.Expression:
        if self.joined and (known := self.joined.get(node)) is not None:
            return known.copy()
        call = node
        while isinstance(call, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)):
            call = call.this
        if is_aggregate(call) and not isinstance(node.parent, exp.Window) and self.subquery is not self.inside:
            outside, self.subquery = self.subquery, self.inside
            try:
                return super()._bind(node)
            finally:
                self.subquery = outside
        if is_now(node):
            raise self.ctx.fail("PSK-2007", "now() is not allowed here", node)
        if struct_window(node) is not None and isinstance(node, exp.Anonymous):
            return self._struct(node)
        half = bound_of(node)
        kind = window_kind(node)
        if half is None and kind is None:
            return super()._bind(node)
        assert isinstance(node, exp.Anonymous)
        if self.window is None:
            raise self.ctx.fail(
                "PSK-2003", f"{node.name.removeprefix('__').upper()} needs the same window in GROUP BY", node
            )
        spec, start, end = self.window
        wanted = kind or (half[0] if half else None)
        if node.expressions:
            assert wanted is not None
            own = window_spec(self.ctx, wanted, super()._bind(node.expressions[0]), list(node.expressions[1:]), node)
            if own != spec:
                raise self.ctx.fail("PSK-2003", "this window is not the one in GROUP BY", node)
        elif wanted != spec.kind or kind is not None:
            raise self.ctx.fail("PSK-2003", "this window is not the one in GROUP BY", node)
        return column(end if half is not None and half[1] == "end" else start)

    def _struct(self, node: exp.Anonymous) -> exp.Expression:
        """window(…) and session_window(…) where the query has this window."""
        if self.window is None:
            hint = (
                f"Write GROUP BY {node.name.lower()}(ts, …), and {node.name.lower()}.start where you need its bounds."
            )
            raise self.ctx.fail("PSK-2003", f"{node.name.lower()}() needs the same window in GROUP BY", node, hint=hint)
        spec, start, end = self.window
        # Its arguments could mean something else here: an inner window has the name of this one.
        if (
            node.sql(dialect=DIALECT) != self.call
            and struct_spec(self.ctx, struct_time(self.ctx, super()._bind(node.expressions[0])), node) != spec
        ):
            raise self.ctx.fail("PSK-2003", "this window is not the one in GROUP BY", node)
        return window_struct(start, end)


class Draft:
    """A block so far: `node` is its plan and `correlated` the conditions that its outer query has to apply. The parts of a block (select list, GROUP BY …) each extend it.

    `outer` is the scope of the outer query, for correlated names. `window` is the window of GROUP BY, with the names of its bounds.
    """

    def __init__(
        self, ctx: Context, select: exp.Select, outer: Scope | None, ctes: Ctes, bind_query: BindQuery
    ) -> None:
        self.ctx = ctx
        self.select = select
        self.scope = Scope(outer=outer)
        self.ctes = ctes
        self.bind_query = bind_query
        self.correlated: list[exp.Expression] = []
        self.aliases = {e.alias.lower(): e.this for e in select.expressions if isinstance(e, exp.Alias)}
        self.window: tuple[WindowSpec, str, str] | None = None
        self.window_call: str | None = None
        self.subqueries = Subqueries(ctx, bind_query, ctes)
        self.joined: dict[exp.Expression, exp.Expression] = {}
        """The group keys with subqueries, as they were written, and what they are bound to."""
        self.domain = outer.domain if outer is not None else None
        self.node: Node

    def outer_refs(self, node: exp.Expression) -> frozenset[str]:
        """The columns of the outer query in an expression."""
        return Expr(node).refs - frozenset(self.node.columns)

    def binder(self, *, aliases: bool = False, attach: bool = False) -> BlockExprs:
        """Binds expressions of the block. `attach`: a subquery is joined at once; otherwise when the plan is ready for it."""
        binder = BlockExprs(
            self.ctx, self.scope, self.aliases if aliases else None, self.attach if attach else self.subqueries.later
        )
        binder.window, binder.call = self.window, self.window_call
        binder.inside = self.attach
        binder.joined = self.joined
        return binder

    def attach(self, node: exp.Expression) -> exp.Expression:
        """Joins a subquery to the plan. Returns the expression for its value."""
        self.node, value = self.subqueries.attach(self.node, self.scope, node)
        return value
