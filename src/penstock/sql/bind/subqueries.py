"""Subqueries in expressions, turned into joins: semi, anti, and left joins with aggregates."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from penstock.plan.nodes import AggCall, Aggregate, Expr, Filter, Join, Node, col
from penstock.sql.bind.block import Block
from penstock.sql.bind.context import Context
from penstock.sql.bind.exprs import ExprBinder, column, conjuncts, to_expr
from penstock.sql.bind.joins import regular_join
from penstock.sql.bind.relations import BindQuery, Ctes
from penstock.sql.bind.scope import Scope
from penstock.sql.trees import bare

Lift = Callable[[exp.Expression, exp.Expression | None], exp.Expression]


class Subqueries:
    def __init__(self, ctx: Context, bind_query: BindQuery, ctes: Ctes) -> None:
        self.ctx = ctx
        self.bind_query = bind_query
        self.ctes = ctes
        self._later: dict[str, exp.Expression] = {}

    def is_predicate(self, node: exp.Expression) -> bool:
        """[NOT] EXISTS (…) or e [NOT] IN (select) as a whole conjunct."""
        inner = bare(node.this) if isinstance(node, exp.Not) else node
        if isinstance(inner, exp.Exists) and isinstance(inner.this, exp.Query):
            return True
        return isinstance(inner, exp.In) and inner.args.get("query") is not None

    def predicate(self, node: Node, scope: Scope, part: exp.Expression) -> Node:
        negated = isinstance(part, exp.Not)
        inner = bare(part.this) if negated else part
        if isinstance(inner, exp.Exists):
            block = self._bind(inner.this, scope)
            if block.total:
                raise self.ctx.fail("PSK-1012", "EXISTS over an aggregate without GROUP BY is always true", part)
            return self._join(node, block, negated, block.correlated, part)
        query = inner.args["query"]
        value = ExprBinder(self.ctx, scope).bind(inner.this)
        block = self._bind(query, scope)
        if len(block.cols) != 1:
            raise self.ctx.fail("PSK-1016", f"the query in IN has {len(block.cols)} columns, one is wanted", part)
        if block.correlated and (block.counts or block.mixed_count):
            raise self.ctx.fail(
                "PSK-1012", "IN over a correlated aggregate with count() or constants is not supported", part
            )
        same = exp.EQ(this=value, expression=column(block.cols[0].internal))
        if not negated:
            return self._join(node, block, False, [*block.correlated, same], part)
        if block.correlated:
            raise self.ctx.fail("PSK-1012", "a correlated NOT IN is not supported", part, hint="Write NOT EXISTS (…).")
        return self._not_in(node, scope, query, block, value, same, part)

    def _not_in(
        self,
        node: Node,
        scope: Scope,
        query: exp.Expression,
        block: Block,
        value: exp.Expression,
        same: exp.Expression,
        part: exp.Expression,
    ) -> Node:
        """x NOT IN S is true if S is empty, or if x is not NULL, S has no NULL and no x."""
        again = self._bind(query, scope)
        rows, known = self.ctx.fresh("agg"), self.ctx.fresh("agg")
        counted = Aggregate(
            again.node, (), (AggCall(rows, "count", ()), AggCall(known, "count", (col(again.cols[0].internal),)))
        )
        made: Node = self._join(node, block, True, [same], part)
        one = Expr(exp.Literal.number(1))
        made = Join(made, counted, "inner", (one,), (one,))
        empty = exp.EQ(this=column(rows), expression=exp.Literal.number(0))
        full = exp.EQ(this=column(rows), expression=column(known))
        present = exp.Not(this=exp.Is(this=exp.Paren(this=value.copy()), expression=exp.Null()))
        condition = exp.Or(this=empty, expression=exp.Paren(this=exp.And(this=present, expression=full)))
        return Filter(made, to_expr(self.ctx, condition))

    def _join(
        self, node: Node, block: Block, negated: bool, parts: list[exp.Expression], origin: exp.Expression
    ) -> Node:
        flat = [p for whole in parts for p in conjuncts(whole)]
        return regular_join(self.ctx, node, block.node, "anti" if negated else "semi", flat, origin, keyless=not parts)

    def _bind(self, query: exp.Expression, scope: Scope) -> Block:
        return self.bind_query(query, scope, self.ctes)

    # -- scalar --------------------------------------------------------------------------------------------------------

    def later(self, node: exp.Expression) -> exp.Expression:
        """A placeholder for a scalar subquery that is attached when the plan is ready for it."""
        name = self.ctx.fresh("__sub")
        self._later[name] = node
        return exp.Parameter(this=exp.Var(this=name))

    def resolve(self, node: Node, scope: Scope, expression: exp.Expression, lift: Lift) -> tuple[Node, exp.Expression]:
        if not self._later:
            return node, expression
        for placeholder in list(expression.find_all(exp.Parameter)):
            query = self._later.get(placeholder.name)
            if query is None:
                continue
            node, value = self.scalar(node, scope, query, lift)
            if placeholder is expression:
                return node, value
            placeholder.replace(value)
        return node, expression

    def scalar(
        self, node: Node, scope: Scope, query: exp.Expression, lift: Lift | None = None
    ) -> tuple[Node, exp.Expression]:
        if not isinstance(query, exp.Subquery):
            raise self.ctx.fail("PSK-1012", "EXISTS and IN (select) stand in WHERE, joined by AND", query)
        block = self._bind(query.this, scope)
        if len(block.cols) != 1:
            raise self.ctx.fail("PSK-1016", f"a scalar subquery has one column, not {len(block.cols)}", query)
        if not block.single:
            raise self.ctx.fail(
                "PSK-1012",
                "a scalar subquery must give one row",
                query,
                hint="Select an aggregate without GROUP BY, or add LIMIT 1.",
            )
        value: exp.Expression = column(block.cols[0].internal)
        if block.correlated and block.total and block.mixed_count:
            raise self.ctx.fail(
                "PSK-1012",
                "a correlated subquery with count() or constants inside an expression is not supported",
                query,
                hint="Select one aggregate alone.",
            )
        if block.correlated and block.total and block.counts:
            value = exp.Coalesce(this=value, expressions=[exp.Literal.number(0)])
        parts = list(block.correlated)
        if lift is not None:
            own = frozenset(block.node.columns)
            parts = [self._lifted(p, own, lift, query) for p in parts]
        made = regular_join(
            self.ctx,
            node,
            block.node,
            "inner" if block.total and not parts else "left",
            parts,
            query,
            keyless=not parts,
        )
        return made, value

    def _lifted(self, part: exp.Expression, own: frozenset[str], lift: Lift, query: exp.Expression) -> exp.Expression:
        if not isinstance(part, exp.EQ):
            raise self.ctx.fail("PSK-1012", "this subquery can be correlated by equalities only", query)
        sides = [s if Expr(s).refs <= own else lift(s, query) for s in (part.this, part.expression)]
        return exp.EQ(this=sides[0].copy(), expression=sides[1].copy())
