"""Correlated subqueries that a join condition cannot express: they are bound over the values of the outer query.

The *domain* of a subquery is the distinct combinations of values of the outer columns that it uses. Bound over its domain, every part
of the subquery (aggregates, LIMIT, set operations, nested subqueries) has those columns as its own, and one null-safe join with
the outer query completes it. This reads the outer query twice, so it is a last resort.
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


class CannotDecorrelate(Exception):
    """Raised while a subquery is bound: join conditions cannot express its correlation. `at` is the innermost subquery that no way is open to."""

    at: exp.Expression | None = None


class Correlation:
    """The correlation of one subquery with `node`, the plan of its outer query, whose names are in `scope`."""

    def __init__(self, ctx: Context, node: Node, scope: Scope, lift: Lift | None = None) -> None:
        self.ctx = ctx
        self.node = node
        self.scope = scope
        self.lift = lift

    def bind(
        self, query: exp.Expression, bind: Callable[[exp.Expression, Scope], Block]
    ) -> tuple[Block, list[exp.Expression]]:
        """Returns the subquery, bound over its domain, and the conditions that join it with `node`."""
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
            raise CannotDecorrelate
        _record_use(self.scope.outer, set(used))
        outer = {c: self.lift(column(c), query) if self.lift else column(c) for c in used}
        items = tuple(Named(names[c], to_expr(self.ctx, e, query)) for c, e in outer.items())
        domain = Domain(Distinct(Project(self.node, items)), tuple(i.name for i in items))
        block = bind(query, self._renamed(self.scope, {c: names[c] for c in used}, domain))
        if block.correlated:
            raise CannotDecorrelate
        return block, [exp.NullSafeEQ(this=_whole(e), expression=column(names[c])) for c, e in outer.items()]

    def _columns(self) -> list[str]:
        """The columns that a domain can have: those of `node` and, above an aggregate, those of its input relations."""
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


def _record_use(scope: Scope | None, used: set[str]) -> None:
    """Records columns that were used through copies of outer scopes in the scopes themselves."""
    if scope is not None:
        scope.used |= used & {c.internal for r in scope.relations for c in r.cols}
        _record_use(scope.outer, used)


def _used(scope: Scope | None) -> set[str]:
    return set() if scope is None else scope.used | _used(scope.outer)


def _whole(node: exp.Expression) -> exp.Expression:
    return node.copy() if isinstance(node, exp.Column) else exp.Paren(this=node.copy())
