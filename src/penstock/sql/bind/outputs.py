"""The end of a block: OVER, QUALIFY, the selected columns, DISTINCT, ORDER BY … LIMIT."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.nodes import Distinct, Expr, Filter, Named, Project, SortKey, TopN, col
from penstock.sql.bind.aggregates import sort_keys
from penstock.sql.bind.analytic import Analytics
from penstock.sql.bind.block import Block
from penstock.sql.bind.correlation import CannotDecorrelate, Lift
from penstock.sql.bind.draft import Draft, Items
from penstock.sql.bind.exprs import column, to_expr, type_of
from penstock.sql.bind.limit import is_all, limited
from penstock.sql.bind.scope import Col
from penstock.sql.bind.structs import bounds
from penstock.sql.trees import bare, with_parts


class Outputs:
    """Everything above FROM, WHERE and GROUP BY. `lift` rewrites an expression over the input of the block to one over the plan so far."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft

    def finish(self, items: Items, bound: list[exp.Expression], lift: Lift, inner: list[str] | None = None) -> Block:
        analytics = Analytics(self.draft.ctx, self._named_windows(lift))
        bound = [analytics.extract(b, items[i][0]) for i, b in enumerate(bound)]
        qualify = self.draft.select.args.get("qualify")
        condition = None
        if qualify is not None:
            node = lift(self.draft.binder(aliases=True).bind(qualify.this), qualify.this)
            condition = analytics.extract(node, qualify.this)
        order = self._order(items, bound, lift, analytics)
        on = self._distinct_on(items, bound, lift, analytics, order)
        distinct = self.draft.select.args.get("distinct") is not None and not on
        if on and self.draft.correlated:
            raise CannotDecorrelate
        if self.draft.correlated and (
            analytics.groups or (distinct and not all(isinstance(p, exp.EQ) for p in self.draft.correlated))
        ):
            raise CannotDecorrelate
        names = self.draft.domain.names if self.draft.domain is not None else ()
        self.draft.node = analytics.apply(self.draft.node, tuple(col(d) for d in names))
        checked = [
            *bound,
            *(k.expr.node for k in order),
            *(e.node for e in on),
            *([condition] if condition is not None else []),
        ]
        if any(self.draft.outer_refs(e) for e in checked):
            raise CannotDecorrelate
        if condition is not None:
            self.draft.node = Filter(self.draft.node, to_expr(self.draft.ctx, condition, qualify))
        if on:
            self.draft.node = TopN(self.draft.node, (*(col(d) for d in names), *on), tuple(order), 1)
            # There is one row for these keys, so that later ones only choose it.
            order = order[: len(on)]
        limited_here = any(self.draft.select.args.get(k) for k in ("limit", "offset"))
        if on and not limited_here and not self.draft.ctx.query.presents(self.draft.select):
            order = []
        outputs, cols = self._outputs(items, bound)
        shown = {n.name for n in outputs}
        if self.draft.ctx.query.presents(self.draft.select) and not limited_here:
            order, extra = self._presented(order, outputs), []
        else:
            extra = self._extra(order, outputs, shown)
        kept = self._exposed(inner, shown | {e.name for e in extra})
        held = dict.fromkeys(b for c in cols for b in c.bounds or ())
        kept += [Named(b, col(b)) for b in held if all(n.name != b for n in (*outputs, *extra, *kept))]
        if distinct and extra:
            raise self.draft.ctx.fail(
                "PSK-1019", "with DISTINCT, ORDER BY can only use selected columns", self.draft.select
            )
        self.draft.node = Project(self.draft.node, (*outputs, *extra, *kept))
        if distinct:
            self.draft.node = Distinct(self.draft.node)
        block = Block(self.draft.node, cols, self.draft.correlated, domain=names)
        if limited_here or order:
            limited(self.draft.ctx, block, self.draft.select, order)
        if extra:
            used = {r for part in self.draft.correlated for r in Expr(part).refs}
            keep = [*outputs, *(e for e in extra if e.name in used), *kept]
            block.node = Project(block.node, tuple(Named(n.name, col(n.name)) for n in keep))
        return block

    def _named_windows(self, lift: Lift) -> list[exp.Expression]:
        out = []
        for w in self.draft.select.args.get("windows") or []:
            made = w.copy()
            for key in ("partition_by", "order"):
                value = w.args.get(key)
                if isinstance(value, list):
                    made.set(key, [lift(self.draft.binder().bind(v), v) for v in value])
                elif value is not None:
                    made.set(
                        key,
                        exp.Order(
                            expressions=[
                                _ordered(o, lift(self.draft.binder().bind(o.this), o.this)) for o in value.expressions
                            ]
                        ),
                    )
            out.append(made)
        return out

    def _order(self, items: Items, bound: list[exp.Expression], lift: Lift, analytics: Analytics) -> list[SortKey]:
        clause = self.draft.select.args.get("order")
        return self._sorted(clause, items, bound, lift, analytics) if clause is not None else []

    def _sorted(
        self, clause: exp.Expression, items: Items, bound: list[exp.Expression], lift: Lift, analytics: Analytics
    ) -> list[SortKey]:
        """Terms over outputs, by name or number, or over the input."""
        names = [n.lower() for _, n in items]
        out: list[exp.Expression] = []
        if is_all(clause) and "all" not in names and not self.draft.scope.find("all"):
            return list(sort_keys(self.draft.ctx, [_ordered(clause.expressions[0], b.copy()) for b in bound]))
        for item in clause.expressions:
            core = item.this if isinstance(item, exp.Ordered) else item
            inner = bare(core)
            if isinstance(inner, exp.Literal) and inner.is_int:
                n = int(inner.name)
                if not 1 <= n <= len(items):
                    raise self.draft.ctx.fail(
                        "PSK-1004", f"ORDER BY {n}: there are {len(items)} selected columns", core
                    )
                node = bound[n - 1].copy()
            elif isinstance(inner, exp.Column) and not inner.table and names.count(inner.name.lower()) == 1:
                node = bound[names.index(inner.name.lower())].copy()
            else:
                node = analytics.extract(lift(self.draft.binder(aliases=True).bind(core), core), core)
            out.append(_ordered(item, node))
        return list(sort_keys(self.draft.ctx, out))

    def _distinct_on(
        self, items: Items, bound: list[exp.Expression], lift: Lift, analytics: Analytics, order: list[SortKey]
    ) -> list[Expr]:
        """The expressions of DISTINCT ON, of whose values each has the first row in ORDER BY. That must begin with them."""
        distinct = self.draft.select.args.get("distinct")
        clause = distinct.args.get("on") if distinct is not None else None
        if clause is None:
            return []
        if not clause.expressions:
            raise self.draft.ctx.fail(
                "PSK-1012", "DISTINCT ON () has no keys", self.draft.select, hint="Write LIMIT 1."
            )
        listed = exp.Order(expressions=[exp.Ordered(this=e) for e in clause.expressions])
        on = [k.expr for k in self._sorted(listed, items, bound, lift, analytics)]
        known = {e.sql() for e in on}
        if any(k.expr.sql() not in known for k in order[: len(on)]):
            raise self.draft.ctx.fail(
                "PSK-1012",
                "ORDER BY must begin with the expressions of DISTINCT ON",
                self.draft.select.args["order"],
                hint="Write SELECT DISTINCT ON (k) … ORDER BY k, ….",
            )
        return on

    def _outputs(self, items: Items, bound: list[exp.Expression]) -> tuple[list[Named], list[Col]]:
        outputs: list[Named] = []
        cols: list[Col] = []
        used: set[str] = set()
        for (core, name), node in zip(items, bound, strict=True):
            expr = to_expr(self.draft.ctx, node, core)
            internal = expr.column
            taken = internal in used or (self.draft.domain is not None and internal in self.draft.domain.names)
            if internal is None or taken:
                internal = self.draft.ctx.fresh(name.replace("$", "_"))
                known = type_of(self.draft.ctx, node)
                if known is not None:
                    self.draft.ctx.types[internal] = known
            used.add(internal)
            outputs.append(Named(internal, expr))
            cols.append(Col(name, internal, bounds=bounds(node)))
        return outputs, cols

    def _presented(self, order: list[SortKey], outputs: list[Named]) -> list[SortKey]:
        """The order of a view, over its columns: nothing else is stored."""
        out = []
        for key, item in zip(order, self.draft.select.args["order"].expressions if order else [], strict=False):
            node = _over(outputs, key.expr.node)
            if not Expr(node).refs <= {o.name for o in outputs}:
                raise self.draft.ctx.fail(
                    "PSK-4001",
                    "the order of a view can only use its own columns",
                    item,
                    hint="Select what it is ordered by, add LIMIT n, or order when you SELECT from the view.",
                )
            out.append(SortKey(Expr(node), key.desc, key.nulls_first))
        return out

    def _extra(self, order: list[SortKey], outputs: list[Named], shown: set[str]) -> list[Named]:
        """Extra columns for sort keys that are not selected. Every sort key becomes a column of the projection."""
        extra: list[Named] = []
        for i, key in enumerate(order):
            hit = next((o for o in (*outputs, *extra) if o.expr == key.expr), None)
            if hit is None:
                name = key.expr.column
                if name is None or name in shown:
                    name = self.draft.ctx.fresh("sort")
                hit = Named(name, key.expr)
                extra.append(hit)
            order[i] = SortKey(col(hit.name), key.desc, key.nulls_first)
        return extra

    def _exposed(self, inner: list[str] | None, shown: set[str]) -> list[Named]:
        """The columns that correlated conditions need."""
        mine = set(self.draft.node.columns)
        refs = {r for part in self.draft.correlated for r in Expr(part).refs if r in mine}
        refs |= set(inner or [])
        if self.draft.domain is not None:
            refs |= set(self.draft.domain.names)
        return [Named(r, col(r)) for r in sorted(refs - shown)]


def _over(outputs: list[Named], node: exp.Expression) -> exp.Expression:
    """An expression over the input of a SELECT as one over its output, as far as that is possible."""
    expr = Expr(node)
    hit = next((o for o in outputs if o.expr == expr), None)
    if hit is not None:
        return column(hit.name)
    if isinstance(node, exp.Column):
        # Another output may have the same internal name.
        return column(f"{node.name}$") if any(o.name == node.name for o in outputs) else node
    return with_parts(node.copy(), lambda part: _over(outputs, part), node)


def _ordered(item: exp.Expression, node: exp.Expression) -> exp.Expression:
    if isinstance(item, exp.Ordered):
        return exp.Ordered(this=node, desc=item.args.get("desc"), nulls_first=item.args.get("nulls_first"))
    return exp.Ordered(this=node)
