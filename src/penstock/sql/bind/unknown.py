"""Evaluates `e op ANY (select)` with joins: one finds matches, another finds comparisons that are NULL."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from penstock.plan.nodes import AggCall, Aggregate, Expr, Join, Named, Node, Project, col
from penstock.sql.bind.block import Block
from penstock.sql.bind.context import Context
from penstock.sql.bind.exprs import column, to_expr
from penstock.sql.bind.joins import regular_join
from penstock.sql.bind.scope import Col


def matches(op: type[exp.Expression], values: Sequence[exp.Expression], cols: Sequence[Col]) -> list[exp.Expression]:
    return [op(this=_whole(v), expression=column(c.internal)) for v, c in zip(values, cols, strict=True)]


def holds(matched: exp.Expression, unknown: exp.Expression) -> exp.Expression:
    null = exp.cast(exp.Null(), "boolean")
    return exp.Case(
        ifs=[exp.If(this=matched, true=exp.true()), exp.If(this=unknown, true=null)],
        default=exp.false(),
    )


class Unknown:
    """Finds the rows of `node` without a match in `block` for which some comparison is NULL."""

    def __init__(self, ctx: Context, node: Node, block: Block, values: Sequence[exp.Expression]) -> None:
        self.ctx = ctx
        self.node = node
        self.block = block
        self.values = values
        self.own = frozenset(block.node.columns)

    def counted(self, parts: Sequence[exp.Expression]) -> tuple[Node, exp.Expression] | None:
        """For a single value, correlated by equalities or uncorrelated: one row per group has flags for NULLs."""
        keys = [self._key(p) for p in parts]
        if len(self.values) != 1 or None in keys:
            return None
        inner = [Named(self.ctx.fresh("key"), to_expr(self.ctx, k[0])) for k in keys if k is not None]
        outer = [to_expr(self.ctx, k[1]) for k in keys if k is not None]
        rows, known, some, nulls = (self.ctx.fresh(n) for n in ("agg", "agg", "some", "nulls"))
        value = col(self.block.cols[0].internal)
        grouped = Aggregate(
            self.block.node, tuple(inner), (AggCall(rows, "count", ()), AggCall(known, "count", (value,)))
        )
        # Flags instead of counts: they rarely change, so the joined rows rarely change.
        flags = (
            Named(some, Expr(exp.GT(this=column(rows), expression=exp.Literal.number(0)))),
            Named(nulls, Expr(exp.LT(this=column(known), expression=column(rows)))),
        )
        flagged = Project(grouped, (*(Named(k.name, col(k.name)) for k in inner), *flags))
        one = (Expr(exp.Literal.number(1)),)
        made = (
            Join(self.node, flagged, "left", tuple(outer), tuple(col(k.name) for k in inner))
            if inner
            else Join(self.node, flagged, "inner", one, one)
        )
        missing = exp.Or(this=_is_null(self.values[0]), expression=column(nulls))
        there = exp.Coalesce(this=column(some), expressions=[exp.false()])
        return made, exp.Paren(this=exp.And(this=there, expression=exp.Paren(this=missing)))

    def marked(self, parts: Sequence[exp.Expression], origin: exp.Expression) -> tuple[Node, exp.Expression]:
        """For any correlation: a mark join in which every NULL counts as a match."""
        possible = [self._possible(v, c) for v, c in zip(self.values, self.block.cols, strict=True)]
        mark = self.ctx.fresh("mark")
        made = regular_join(self.ctx, self.node, self.block.node, "mark", [*parts, *possible], origin, mark=mark)
        return made, column(mark)

    def _possible(self, value: exp.Expression, c: Col) -> exp.Expression:
        missing = exp.Or(this=_is_null(value), expression=_is_null(column(c.internal)))
        if len(self.values) == 1:
            return exp.Paren(this=missing)
        same = exp.EQ(this=_whole(value), expression=column(c.internal))
        return exp.Paren(this=exp.Or(this=same, expression=missing))

    def _key(self, part: exp.Expression) -> tuple[exp.Expression, exp.Expression] | None:
        if not isinstance(part, exp.EQ):
            return None
        a, b = part.this, part.expression
        if Expr(b).refs and Expr(b).refs <= self.own:
            a, b = b, a
        fits = Expr(a).refs and Expr(a).refs <= self.own and Expr(b).refs and not Expr(b).refs & self.own
        return (a, b) if fits else None


def _is_null(node: exp.Expression) -> exp.Expression:
    return exp.Is(this=_whole(node), expression=exp.Null())


def _whole(node: exp.Expression) -> exp.Expression:
    return node.copy() if isinstance(node, (exp.Column, exp.Literal)) else exp.Paren(this=node.copy())
