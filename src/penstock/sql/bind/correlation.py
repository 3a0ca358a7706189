"""Correlated subqueries that no condition of a join can carry: they are bound over the values that the outer query has.

The columns that a subquery uses of the query around it, each combination of values once, are its *domain*. Bound over it, every part
of the subquery (aggregates, LIMIT, set operations, subqueries inside) has those columns as its own, and one null-safe join
with the outer query finishes it. It costs a second reading of the outer query, so it is only done where it must be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from penstock.plan.nodes import Distinct, Expr, Named, Node, Project, Values
from penstock.sql.bind.block import Block
from penstock.sql.bind.context import Context
from penstock.sql.bind.exprs import column, to_expr
from penstock.sql.bind.scope import Domain, Scope

Lift = Callable[[exp.Expression, exp.Expression | None], exp.Expression]


class Uncorrelated(Exception):
    """Raised while a subquery is bound: its correlation is not one of conditions between two relations."""


class Correlation:
    """How one subquery hangs on `node`, the plan of the query around it, whose names are in `scope`."""

    def __init__(self, ctx: Context, node: Node, scope: Scope, lift: Lift | None = None) -> None:
        self.ctx = ctx
        self.node = node
        self.scope = scope
        self.lift = lift

    def bind(
        self, query: exp.Expression, bind: Callable[[exp.Expression, Scope], Block]
    ) -> tuple[Block, list[exp.Expression]]:
        """The subquery over its domain, and the conditions that join it with `node`."""
        prefix = self.ctx.fresh("outer")
        names = {c: f"{prefix}${c}" for c in self._columns()}
        for c, name in names.items():
            if c in self.ctx.types:
                self.ctx.types[name] = self.ctx.types[c]
        every = Values(tuple(names.values()), ((Expr(exp.Null()),) * len(names),))
        trial = self._renamed(self.scope, names, Domain(every, every.names))
        bind(query, trial)
        used = [c for c, name in names.items() if name in _used(trial)]
        if not used:
            raise Uncorrelated
        _tell(self.scope.outer, set(used))
        outer = {c: self.lift(column(c), query) if self.lift else column(c) for c in used}
        items = tuple(Named(names[c], to_expr(self.ctx, e, query)) for c, e in outer.items())
        domain = Domain(Distinct(Project(self.node, items)), tuple(i.name for i in items))
        block = bind(query, self._renamed(self.scope, {c: names[c] for c in used}, domain))
        if block.correlated:
            raise Uncorrelated
        return block, [exp.NullSafeEQ(this=_whole(e), expression=column(names[c])) for c, e in outer.items()]

    def _columns(self) -> list[str]:
        """The columns that a domain can have: those of `node`; above an aggregate, those that it may be asked for."""
        known = set(self.node.columns)
        if self.lift is not None:
            known |= {c.internal for r in self.scope.relations for c in r.cols}
        out: dict[str, None] = {}
        scope: Scope | None = self.scope
        while scope is not None:
            out |= dict.fromkeys(c.internal for r in scope.relations for c in r.cols if c.internal in known)
            scope = scope.outer
        return list(out)

    def _renamed(self, scope: Scope, names: dict[str, str], domain: Domain | None) -> Scope:
        relations = [
            replace(r, cols=tuple(replace(c, internal=names.get(c.internal, c.internal)) for c in r.cols))
            for r in scope.relations
        ]
        outer = self._renamed(scope.outer, names, None) if scope.outer is not None else None
        return Scope(relations, outer, domain)


def _tell(scope: Scope | None, used: set[str]) -> None:
    """The copies of outer scopes have been asked for these columns; now the scopes themselves are."""
    if scope is not None:
        scope.used |= used & {c.internal for r in scope.relations for c in r.cols}
        _tell(scope.outer, used)


def _used(scope: Scope | None) -> set[str]:
    return set() if scope is None else scope.used | _used(scope.outer)


def _whole(node: exp.Expression) -> exp.Expression:
    return node.copy() if isinstance(node, exp.Column) else exp.Paren(this=node.copy())
