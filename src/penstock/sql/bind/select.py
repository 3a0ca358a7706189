"""One SELECT block: FROM → WHERE → GROUP BY → HAVING → OVER → QUALIFY → SELECT → DISTINCT → ORDER BY … LIMIT."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.nodes import Expr, Filter, Generate, TemporalFilter
from penstock.sql.bind.aggregates import has_aggregate
from penstock.sql.bind.block import Block
from penstock.sql.bind.correlation import CannotDecorrelate
from penstock.sql.bind.draft import Items
from penstock.sql.bind.exprs import ExprBinder, all_of, conjuncts, to_expr, walk_block
from penstock.sql.bind.groupby import GroupBy
from penstock.sql.bind.joins import regular_join
from penstock.sql.bind.quantified import filters_only
from penstock.sql.bind.relations import From
from penstock.sql.bind.scope import Domain
from penstock.sql.bind.selectlist import SelectList
from penstock.sql.bind.temporal import Bounds, has_now

_KNOWN = {
    "expressions", "from_", "joins", "laterals", "where", "group", "having", "qualify", "windows", "distinct", "order", "limit", "offset",
    "with_", "kind",
}  # fmt: skip
_EXTRAS: dict[str, tuple[str, str | None]] = {
    "locks": (
        "FOR UPDATE",
        "Remove it: a query sees only whole commits, and BEGIN … COMMIT makes several writes one commit.",
    ),
    "into": ("SELECT … INTO", "Write CREATE STREAM name AS SELECT …, or INSERT INTO name SELECT …."),
    "sort": ("SORT BY", "Use ORDER BY … LIMIT n, or order when you SELECT from the view."),
    "cluster": ("CLUSTER BY", "Remove it: Penstock distributes the rows."),
    "distribute": ("DISTRIBUTE BY", "Remove it: Penstock distributes the rows."),
    "match": ("MATCH_RECOGNIZE", None),
    "connect": ("CONNECT BY", None),
    "hint": ("A hint", "Remove it."),
}


class SelectBinder(SelectList, GroupBy):
    """Binds one block."""

    def bind(self) -> Block:
        for key, value in self.select.args.items():
            if value and key not in _KNOWN:
                what, hint = _EXTRAS.get(key, (key.strip("_").upper().replace("_", " "), None))
                place = value if isinstance(value, exp.Expression) else self.select
                raise self.ctx.fail("PSK-1012", f"{what} is not supported in a query", place, hint=hint)
        if not self.select.expressions:
            raise self.ctx.fail("PSK-1001", "SELECT has no columns", self.select)
        where = self.select.args.get("where")
        self._where(self._from(conjuncts(where.this) if where else []))
        items = self._items()
        grouped = (
            bool(self.select.args.get("group")) or any(has_aggregate(i) for i, _ in items) or self._having_aggregates()
        )
        return self._aggregated(items) if grouped else self._plain(items)

    def _from(self, where: list[exp.Expression]) -> list[exp.Expression]:
        """Binds FROM and the domain. Returns the remaining WHERE conditions."""
        outer, domain = self.scope.outer, self.domain
        if outer is None or domain is None:
            source = From(self.ctx, self.ctes, self.bind_query, self.scope, where)
            self.node = source.bind(self.select)
            return source.where
        used, outer.used = outer.used, set()
        source = From(self.ctx, self.ctes, self.bind_query, self.scope, list(where))
        try:
            self.node = source.bind(self.select)
            inside = bool(outer.used) or self.select.args.get("from_") is None
        except CannotDecorrelate:
            inside = True
        outer.used |= used
        if not inside:
            return self._join_domain(domain, source.where)
        self.scope.relations.clear()
        source = From(self.ctx, self.ctes, self.bind_query, self.scope, list(where), domain.node)
        self.node = source.bind(self.select)
        return source.where

    def _join_domain(self, domain: Domain, where: list[exp.Expression]) -> list[exp.Expression]:
        """Joins the domain on the conditions over it and FROM. Returns the other conditions."""
        joining: list[exp.Expression] = []
        rest: list[exp.Expression] = []
        for part in where:
            plain = part.find(exp.Query) is None and not has_aggregate(part) and not has_now(part)
            node = self._binder().bind(part) if plain and part.find(exp.Window) is None else None
            if node is not None and Expr(node).refs & set(domain.names):
                joining.append(node)
            else:
                rest.append(part)
        self.node = regular_join(self.ctx, self.node, domain.node, "inner", joining, self.select)
        return rest

    def _where(self, parts: list[exp.Expression]) -> None:
        plain: list[exp.Expression] = []
        bounds = Bounds(self.ctx, ExprBinder(self.ctx, self.scope))
        for part in parts:
            if has_aggregate(part) or any(isinstance(n, exp.Window) for n in walk_block(part)):
                raise self.ctx.fail(
                    "PSK-1019",
                    "aggregates and analytic functions are not allowed in WHERE",
                    part,
                    hint="Use HAVING or QUALIFY.",
                )
            if self.subqueries.is_predicate(part):
                self.node = self.subqueries.predicate(self.node, self.scope, part)
            elif has_now(part):
                bounds.add(part)
            else:
                binder = self._binder(attach=True)
                binder.later = frozenset(self.aliases)
                node = binder.bind(filters_only(part))
                if self._outer_refs(node):
                    self.correlated.append(node)
                else:
                    plain.append(node)
        if plain:
            self.node = Filter(self.node, to_expr(self.ctx, all_of(plain), parts[0]))
        enter, leave = bounds.result()
        if enter is not None or leave is not None:
            self.node = TemporalFilter(self.node, enter, leave)

    def _plain(self, items: Items) -> Block:
        having = self.select.args.get("having")
        if having is not None:
            raise self.ctx.fail("PSK-1019", "HAVING needs GROUP BY or an aggregate", having)
        lateral = {n.lower(): e for e, n in items if not isinstance(e, exp.Column)}
        bound = []
        for core, name in items:
            binder = self._binder(attach=True)
            binder.aliases = {k: v for k, v in lateral.items() if k != name.lower()}
            bound.append(binder.bind(core))
        block = self._finish(items, bound, self._resolved)
        one = not any(self.select.args.get(k) for k in ("from_", "laterals"))
        block.single = block.single or (one and not any(isinstance(n, Generate) for n in block.node.walk()))
        return block

    def _resolved(self, node: exp.Expression, origin: exp.Expression | None) -> exp.Expression:
        """For QUALIFY and ORDER BY: attaches their subqueries when they are bound."""
        self.node, node = self.subqueries.resolve(self.node, self.scope, node, lambda n, _: n)
        return node
