"""A SELECT block while it is bound: its plan so far, the names in scope, and the binder for its expressions."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.nodes import Expr, Node
from penstock.sql.bind.aggregates import is_aggregate
from penstock.sql.bind.context import Context
from penstock.sql.bind.exprs import ExprBinder, Subquery, column
from penstock.sql.bind.relations import BindQuery, Ctes
from penstock.sql.bind.scope import Scope
from penstock.sql.bind.subqueries import Subqueries
from penstock.sql.bind.windows import WindowSpec, bound_of, window_kind, window_spec
from penstock.sql.functions import is_now

Items = list[tuple[exp.Expression, str]]


class BlockExprs(ExprBinder):
    """Also binds the window calls of a windowed query, and refuses now(). `inside` handles subqueries inside aggregates."""

    window: tuple[WindowSpec, str, str] | None = None
    inside: Subquery | None = None

    def _bind(self, node: exp.Expression) -> exp.Expression:
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
        self.subqueries = Subqueries(ctx, bind_query, ctes)
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
        binder.window = self.window
        binder.inside = self.attach
        return binder

    def attach(self, node: exp.Expression) -> exp.Expression:
        """Joins a subquery to the plan. Returns the expression for its value."""
        self.node, value = self.subqueries.attach(self.node, self.scope, node)
        return value
