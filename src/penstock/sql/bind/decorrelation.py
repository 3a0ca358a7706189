"""Decorrelation: from a subquery to a block that a join can attach to the outer query.

1. The subquery is bound with the names of the outer query in scope. If its correlation is a list of conditions over its own columns and those of
   the outer query, these are the conditions of the join.
2. Otherwise it is bound again over its domain (`correlation.py`), and joined on the values of the domain. That reads the outer query twice.

Which way is open is only known while the subquery is bound, so whatever cannot be a join condition raises CannotDecorrelate, and nothing else catches it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from penstock.plan.nodes import Expr, Node
from penstock.sql.bind.block import Block
from penstock.sql.bind.context import Context
from penstock.sql.bind.correlation import CannotDecorrelate, Correlation, Lift
from penstock.sql.bind.exprs import conjuncts
from penstock.sql.bind.relations import BindQuery, Ctes
from penstock.sql.bind.scope import Scope
from penstock.sql.trees import with_parts


@dataclass(frozen=True)
class Decorrelated:
    """A subquery and the conditions that join it with the outer query. `over_domain`: it was bound over its domain."""

    block: Block
    parts: list[exp.Expression]
    over_domain: bool


@dataclass(frozen=True)
class Decorrelation:
    """Decorrelates the subqueries of a query. `bind_query` binds one in a scope."""

    ctx: Context
    bind_query: BindQuery
    ctes: Ctes

    def of(
        self,
        query: exp.Expression,
        node: Node,
        scope: Scope,
        origin: exp.Expression,
        *,
        lift: Lift | None = None,
        accepts: Callable[[Block, list[exp.Expression]], bool] = lambda block, parts: True,
    ) -> Decorrelated:
        """`node` is the plan of the outer query, whose names are in `scope`; `lift` rewrites its columns to those of a plan above it.

        `accepts`: whether a join on these conditions has the meaning of the subquery. If not, it is bound over its domain.
        """
        try:
            block = self.bind_query(query, scope, self.ctes)
            parts = _conditions(node, block, lift, origin)
            if accepts(block, parts):
                return Decorrelated(block, parts, over_domain=False)
        except CannotDecorrelate:
            pass
        try:
            bound = Correlation(self.ctx, node, scope, lift).bind(query, lambda q, s: self.bind_query(q, s, self.ctes))
        except CannotDecorrelate as why:
            why.at = why.at or query
            raise
        return Decorrelated(*bound, over_domain=True)


def _conditions(node: Node, block: Block, lift: Lift | None, origin: exp.Expression) -> list[exp.Expression]:
    """The conditions that correlate the block with `node`."""
    own = frozenset(block.node.columns)
    parts = [p for whole in block.correlated for p in conjuncts(whole)]
    if lift is not None:
        parts = [_lifted(p, own, lift, origin) for p in parts]
    if any(Expr(p).refs - own - frozenset(node.columns) for p in parts):
        raise CannotDecorrelate
    return parts


def _lifted(part: exp.Expression, own: frozenset[str], lift: Lift, origin: exp.Expression) -> exp.Expression:
    """Rewrites the largest parts that refer only to the outer query to expressions above its aggregate."""
    refs = Expr(part).refs
    if not refs or refs <= own:
        return part.copy()
    if not refs & own:
        return lift(part, origin)
    return with_parts(part.copy(), lambda inner: _lifted(inner, own, lift, origin), part)
