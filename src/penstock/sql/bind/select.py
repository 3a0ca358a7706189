"""One SELECT block: FROM → WHERE → GROUP BY → HAVING → OVER → QUALIFY → SELECT → DISTINCT → ORDER BY … LIMIT."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.nodes import Expr, Filter, Generate, TemporalFilter
from penstock.sql.bind.aggregates import has_aggregate
from penstock.sql.bind.block import Block
from penstock.sql.bind.context import Context
from penstock.sql.bind.correlation import CannotDecorrelate
from penstock.sql.bind.draft import Draft, Items
from penstock.sql.bind.exprs import ExprBinder, all_of, conjuncts, to_expr, walk_block
from penstock.sql.bind.groupby import GroupBy
from penstock.sql.bind.groupwindow import GroupWindow
from penstock.sql.bind.joins import regular_join
from penstock.sql.bind.outputs import Outputs
from penstock.sql.bind.quantified import filters_only
from penstock.sql.bind.relations import BindQuery, Ctes, From
from penstock.sql.bind.scope import Domain, Scope
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


class SelectBinder:
    """Binds one block: its parts extend one draft, in the order of the clauses."""

    def __init__(
        self, ctx: Context, select: exp.Select, outer: Scope | None, ctes: Ctes, bind_query: BindQuery
    ) -> None:
        self.draft = Draft(ctx, select, outer, ctes, bind_query)

    def bind(self) -> Block:
        for key, value in self.draft.select.args.items():
            if value and key not in _KNOWN:
                what, hint = _EXTRAS.get(key, (key.strip("_").upper().replace("_", " "), None))
                place = value if isinstance(value, exp.Expression) else self.draft.select
                raise self.draft.ctx.fail("PSK-1012", f"{what} is not supported in a query", place, hint=hint)
        if not self.draft.select.expressions:
            raise self.draft.ctx.fail("PSK-1001", "SELECT has no columns", self.draft.select)
        where = self.draft.select.args.get("where")
        self._where(self._from(conjuncts(where.this) if where else []))
        items = SelectList(self.draft).items()
        having = self.draft.select.args.get("having")
        grouped = bool(self.draft.select.args.get("group")) or any(has_aggregate(i) for i, _ in items)
        if grouped or (having is not None and has_aggregate(having.this)):
            return GroupBy(self.draft).bind(items)
        return self._plain(items)

    def _from(self, where: list[exp.Expression]) -> list[exp.Expression]:
        """Binds FROM and the domain. Returns the remaining WHERE conditions."""
        outer, domain = self.draft.scope.outer, self.draft.domain
        if outer is None or domain is None:
            source = From(self.draft.ctx, self.draft.ctes, self.draft.bind_query, self.draft.scope, where)
            self.draft.node = source.bind(self.draft.select)
            return source.where
        used, outer.used = outer.used, set()
        source = From(self.draft.ctx, self.draft.ctes, self.draft.bind_query, self.draft.scope, list(where))
        try:
            self.draft.node = source.bind(self.draft.select)
            inside = bool(outer.used) or self.draft.select.args.get("from_") is None
        except CannotDecorrelate:
            inside = True
        outer.used |= used
        if not inside:
            return self._join_domain(domain, source.where)
        self.draft.scope.relations.clear()
        source = From(
            self.draft.ctx, self.draft.ctes, self.draft.bind_query, self.draft.scope, list(where), domain.node
        )
        self.draft.node = source.bind(self.draft.select)
        return source.where

    def _join_domain(self, domain: Domain, where: list[exp.Expression]) -> list[exp.Expression]:
        """Joins the domain on the conditions over it and FROM. Returns the other conditions."""
        joining: list[exp.Expression] = []
        rest: list[exp.Expression] = []
        for part in where:
            plain = part.find(exp.Query) is None and not has_aggregate(part) and not has_now(part)
            node = self.draft.binder().bind(part) if plain and part.find(exp.Window) is None else None
            if node is not None and Expr(node).refs & set(domain.names):
                joining.append(node)
            else:
                rest.append(part)
        self.draft.node = regular_join(
            self.draft.ctx, self.draft.node, domain.node, "inner", joining, self.draft.select
        )
        return rest

    def _where(self, parts: list[exp.Expression]) -> None:
        plain: list[exp.Expression] = []
        bounds = Bounds(self.draft.ctx, ExprBinder(self.draft.ctx, self.draft.scope))
        for part in parts:
            if has_aggregate(part) or any(isinstance(n, exp.Window) for n in walk_block(part)):
                raise self.draft.ctx.fail(
                    "PSK-1019",
                    "aggregates and analytic functions are not allowed in WHERE",
                    part,
                    hint="Use HAVING or QUALIFY.",
                )
            if self.draft.subqueries.is_predicate(part):
                self.draft.node = self.draft.subqueries.predicate(self.draft.node, self.draft.scope, part)
            elif has_now(part):
                bounds.add(part)
            else:
                binder = self.draft.binder(attach=True)
                binder.later = frozenset(self.draft.aliases)
                node = binder.bind(filters_only(part))
                if self.draft.outer_refs(node):
                    self.draft.correlated.append(node)
                else:
                    plain.append(node)
        if plain:
            self.draft.node = Filter(self.draft.node, to_expr(self.draft.ctx, all_of(plain), parts[0]))
        enter, leave = bounds.result()
        if enter is not None or leave is not None:
            self.draft.node = TemporalFilter(self.draft.node, enter, leave)

    def _plain(self, items: Items) -> Block:
        GroupWindow(self.draft).spread(items)
        having = self.draft.select.args.get("having")
        if having is not None:
            raise self.draft.ctx.fail("PSK-1019", "HAVING needs GROUP BY or an aggregate", having)
        before: dict[str, exp.Expression] = {}
        bound = []
        for core, name in items:
            binder = self.draft.binder(attach=True)
            binder.aliases = {k: v for k, v in before.items() if k != name.lower()}
            bound.append(binder.bind(core))
            if name.lower() in self.draft.aliases:
                before[name.lower()] = core
        block = Outputs(self.draft).finish(items, bound, self._resolved)
        one = not any(self.draft.select.args.get(k) for k in ("from_", "laterals"))
        block.single = block.single or (one and not any(isinstance(n, Generate) for n in block.node.walk()))
        return block

    def _resolved(self, node: exp.Expression, origin: exp.Expression | None) -> exp.Expression:
        """For QUALIFY and ORDER BY: attaches their subqueries when they are bound."""
        self.draft.node, node = self.draft.subqueries.resolve(self.draft.node, self.draft.scope, node, lambda n, _: n)
        return node
