"""Subqueries in ON: each is attached to the side of the join whose columns it uses, and the condition reads its value there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.errors import PenstockError
from penstock.plan.nodes import Expr, Node
from penstock.sql.bind.context import Context
from penstock.sql.bind.correlation import CannotDecorrelate
from penstock.sql.bind.quantified import any_of, is_quantified
from penstock.sql.bind.scope import Scope

if TYPE_CHECKING:
    from penstock.sql.bind.relations import BindQuery, Ctes


class OnSubqueries:
    """The two sides of a join, with the values of the subqueries in its condition. `scope` has the names of both."""

    def __init__(self, ctx: Context, left: Node, right: Node, scope: Scope, bind_query: BindQuery, ctes: Ctes) -> None:
        self.ctx = ctx
        self.left, self.right = left, right
        self.scope = scope
        self.bind_query = bind_query
        self.ctes = ctes

    def attach(self, node: exp.Expression) -> exp.Expression:
        """The value of a subquery, as a column of one side."""
        # It imports the module that uses this class.
        from penstock.sql.bind.subqueries import Subqueries

        used = self._used(node)
        subqueries = Subqueries(self.ctx, self.bind_query, self.ctes)
        try:
            if used <= set(self.right.columns):
                self.right, value = subqueries.attach(self.right, self.scope, node)
            elif used <= set(self.left.columns):
                self.left, value = subqueries.attach(self.left, self.scope, node)
            else:
                raise self.refusal(node)
        except CannotDecorrelate:
            raise self.refusal(node) from None
        return value

    def _used(self, node: exp.Expression) -> set[str]:
        """The columns of the join that the subquery, or a value compared with it, refers to."""
        query = any_of(node).query if is_quantified(node) else node.this
        values = any_of(node).values if is_quantified(node) else []
        trial = Scope(list(self.scope.relations), self.scope.outer)
        try:
            self.bind_query(query, trial, self.ctes)
        except CannotDecorrelate:
            raise self.refusal(node) from None
        return trial.used | {r for v in values for r in Expr(v).refs}

    def refuse(self, node: exp.Expression) -> exp.Expression:
        raise self.refusal(node)

    def refusal(self, node: exp.Expression) -> PenstockError:
        return self.ctx.fail(
            "PSK-1012",
            "a subquery in ON of this join cannot use columns of both sides",
            node,
            hint="Join a derived table that has the subquery's value as a column.",
        )
