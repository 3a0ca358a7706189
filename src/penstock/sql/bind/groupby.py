"""GROUP BY and HAVING: keys, grouping sets, correlated keys and the Aggregate itself."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.functions import OfNothing
from penstock.plan.nodes import AggCall, Aggregate, EmitMode, Expr, Filter, Join, Named, Node, Project, Union, col
from penstock.sql.bind.aggregates import Grouped, has_aggregate
from penstock.sql.bind.block import Block
from penstock.sql.bind.correlation import CannotDecorrelate
from penstock.sql.bind.draft import Draft, Items
from penstock.sql.bind.exprs import all_of, column, conjuncts, to_expr, type_of
from penstock.sql.bind.grouping import grouping_sets
from penstock.sql.bind.groupwindow import GroupWindow
from penstock.sql.bind.outputs import Outputs
from penstock.sql.bind.quantified import filters_only
from penstock.sql.bind.scope import Col, Domain
from penstock.sql.bind.structs import bounds
from penstock.sql.functions import struct_window
from penstock.sql.trees import bare


class GroupBy:
    """A block with groups, from its keys to its outputs."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.window = GroupWindow(draft)

    def bind(self, items: Items) -> Block:
        plain, sets = self._group_parts(items)
        window_keys = self.window.assign(plain, sets)
        keys: list[Named] = []
        for node in plain:
            self._add_keys(keys, node)
        set_keys = [[self._add_key(keys, node) for node in one] for one in sets] if sets is not None else None
        inner = self._correlated_keys(keys)
        if self.draft.domain is not None:
            keys += [Named(d, col(d)) for d in self.draft.domain.names if all(k.name != d for k in keys)]
        keys += window_keys
        for node in [*plain, *(n for one in sets or [] for n in one)]:
            if has_aggregate(node):
                raise self.draft.ctx.fail("PSK-1019", "an aggregate cannot be a group key", node)
        hidden = self.window.hidden_end(keys)
        keys += hidden
        grouping: dict[str, str] = {}
        if set_keys is not None:
            for one in set_keys:
                for k in one:
                    grouping.setdefault(k.expr.sql(), self.draft.ctx.fresh("grouping"))
        grouped = Grouped(
            self.draft.ctx, [*keys, *self.window.session_keys()], frozenset(self.draft.node.columns), grouping
        )
        bound = []
        for core, _ in items:
            binder = self.draft.binder()
            binder.aliases = {n.lower(): e for e, n in items if n.lower() in self.draft.aliases}
            bound.append(grouped.rewrite(binder.bind(core), core))
        having = self.draft.select.args.get("having")
        condition = None
        if having is not None:
            parts = [
                grouped.rewrite(self.draft.binder(aliases=True).bind(filters_only(p)), p)
                for p in conjuncts(having.this)
            ]
            condition = all_of(parts)
        self._prepare(grouped)
        for call in grouped.calls:
            for arg in (*call.args, *((call.filter,) if call.filter else ())):
                if arg.refs - frozenset(self.draft.node.columns):
                    raise CannotDecorrelate
        scalar = not self.draft.select.args.get("group")
        if scalar and having is not None and self.draft.correlated:
            raise CannotDecorrelate
        self.draft.node = self._aggregate(keys, grouped.calls, set_keys, grouping)
        if self.draft.domain is not None and scalar:
            self.draft.node = self._everywhere(self.draft.node, self.draft.domain, grouped.calls)
        if condition is not None:
            condition = self._attached(condition, grouped)
            self.draft.node = Filter(self.draft.node, to_expr(self.draft.ctx, condition, having))
        bound = [self._attached(b, grouped) for b in bound]
        if scalar and self.draft.correlated:
            return self._alone(items, bound, grouped.calls, inner)
        block = Outputs(self.draft).finish(
            items, bound, lambda node, origin: self._attached(grouped.rewrite(node, origin), grouped), inner
        )
        block.single = block.single or scalar
        block.total = scalar and having is None
        return block

    def _alone(self, items: Items, bound: list[exp.Expression], calls: list[AggCall], inner: list[str]) -> Block:
        """A correlated aggregate without GROUP BY: groups the calls by the correlated keys. Expressions over the calls are evaluated above the join."""
        made = {c.name: _on_nothing(c).node for c in calls}
        odd = any(self.draft.select.args.get(k) for k in ("distinct", "qualify", "order", "limit", "offset", "windows"))
        if odd or any(b.find(exp.Window) is not None or Expr(b).refs - made.keys() for b in bound):
            raise CannotDecorrelate
        kept = [*made, *(k for k in dict.fromkeys(inner) if k not in made)]
        cols: list[Col] = []
        deferred: dict[str, exp.Expression] = {}
        for (_, name), value in zip(items, bound, strict=True):
            cols.append(Col(name, self.draft.ctx.fresh(name.replace("$", "_"))))
            deferred[cols[-1].internal] = _replaced(value, made)
            if (known := type_of(self.draft.ctx, value)) is not None:
                self.draft.ctx.types[cols[-1].internal] = known
        node = Project(self.draft.node, tuple(Named(n, col(n)) for n in kept))
        return Block(node, cols, self.draft.correlated, single=True, total=True, deferred=deferred)

    def _prepare(self, grouped: Grouped) -> None:
        """Registers the aggregates of ORDER BY and QUALIFY before the Aggregate is built."""
        for key in ("order", "qualify"):
            clause = self.draft.select.args.get(key)
            if clause is None:
                continue
            for part in clause.expressions if key == "order" else [clause.this]:
                core = part.this if isinstance(part, exp.Ordered) else part
                if has_aggregate(core):
                    grouped.rewrite(self.draft.binder(aliases=True).bind(core), core)

    def _attached(self, node: exp.Expression, grouped: Grouped) -> exp.Expression:
        """Attaches the scalar subqueries of an expression over the Aggregate."""
        self.draft.node, node = self.draft.subqueries.resolve(self.draft.node, self.draft.scope, node, grouped.rewrite)
        return node

    def _group_parts(self, items: Items) -> tuple[list[exp.Expression], list[list[exp.Expression]] | None]:
        group = self.draft.select.args.get("group")
        if group is None:
            return [], None
        if group.args.get("all") and group.expressions:
            raise self.draft.ctx.fail(
                "PSK-1012", "GROUP BY ALL has no keys of its own", group, hint="Write GROUP BY ALL, or the keys."
            )
        if group.args.get("all"):
            return [core for core, _ in items if not has_aggregate(core)], None
        return grouping_sets(self.draft.ctx, group, lambda n: self._named(n, items))

    def _named(self, node: exp.Expression, items: Items) -> exp.Expression:
        """Resolves an ordinal or alias in GROUP BY to its expression."""
        # The parentheses of a scalar subquery belong to it.
        inner = node if isinstance(node, exp.Subquery) else bare(node)
        if isinstance(inner, exp.Query) and not isinstance(inner, exp.Subquery):
            inner = exp.Subquery(this=inner)
        if isinstance(inner, exp.Literal) and inner.is_int:
            n = int(inner.name)
            if not 1 <= n <= len(items):
                raise self.draft.ctx.fail("PSK-1004", f"GROUP BY {n}: SELECT has no column {n}", node)
            return items[n - 1][0]
        if isinstance(inner, exp.Column) and not inner.table and not self.draft.scope.find(inner.name):
            found = next(
                (
                    e
                    for e, name in items
                    if name.lower() == inner.name.lower() and (name.lower() in self.draft.aliases or struct_window(e))
                ),
                None,
            )
            if found is not None:
                return found
        return inner

    def _add_keys(self, keys: list[Named], node: exp.Expression) -> None:
        """The struct of a window is two keys, its bounds."""
        bound = self.draft.binder(attach=True).bind(node)
        pair = bounds(bound)
        if pair is None:
            self._add_bound(keys, bound, node)
        for name in pair or ():
            self._add_bound(keys, column(name), node)

    def _add_key(self, keys: list[Named], node: exp.Expression) -> Named:
        return self._add_bound(keys, self.draft.binder(attach=True).bind(node), node)

    def _add_bound(self, keys: list[Named], bound: exp.Expression, node: exp.Expression) -> Named:
        if self.draft.outer_refs(bound):
            raise CannotDecorrelate
        expr = to_expr(self.draft.ctx, bound, node)
        if node.find(exp.Query) is not None:
            # Wherever else it is written, it is this key.
            self.draft.joined.setdefault(node, bound)
        for k in keys:
            if k.expr == expr:
                return k
        name = expr.column or self.draft.ctx.fresh("key")
        if expr.column is None and (known := type_of(self.draft.ctx, bound)) is not None:
            self.draft.ctx.types[name] = known
        keys.append(Named(name, expr))
        return keys[-1]

    def _correlated_keys(self, keys: list[Named]) -> list[str]:
        """In a correlated aggregate, the inner sides of the correlating equalities become keys, and the conditions refer to these keys."""
        inner: list[str] = []
        mine = frozenset(self.draft.node.columns)
        for i, part in enumerate(self.draft.correlated):
            sides = (part.this, part.expression) if isinstance(part, exp.EQ) else ()
            own = next((s for s in sides if Expr(s).refs and Expr(s).refs <= mine), None)
            other = next((s for s in sides if s is not own and not Expr(s).refs & mine), None)
            if own is None or other is None:
                raise CannotDecorrelate
            expr = to_expr(self.draft.ctx, bare(own))
            name = next((k.name for k in keys if k.expr == expr), None)
            if name is None:
                name = expr.column or self.draft.ctx.fresh("key")
                keys.append(Named(name, expr))
            self.draft.correlated[i] = exp.EQ(this=column(name), expression=other.copy())
            inner.append(name)
        return inner

    def _everywhere(self, node: Node, domain: Domain, calls: list[AggCall]) -> Node:
        """An aggregate without GROUP BY has a row for every value of the domain, even if there is nothing to aggregate."""
        keys = {d: self.draft.ctx.fresh("key") for d in domain.names}
        groups = Project(
            node, (*(Named(k, col(d)) for d, k in keys.items()), *(Named(c.name, col(c.name)) for c in calls))
        )
        left, right = tuple(col(d) for d in keys), tuple(col(k) for k in keys.values())
        made = Join(domain.node, groups, "left", left, right, null_safe=frozenset(range(len(keys))))
        values = (Named(c.name, _on_nothing(c)) for c in calls)
        return Project(made, (*(Named(d, col(d)) for d in keys), *values))

    def _aggregate(
        self, keys: list[Named], calls: list[AggCall], sets: list[list[Named]] | None, grouping: dict[str, str]
    ) -> Node:
        session = self.window.session
        if session is not None and session.time.column not in {t.column for t in self.draft.node.times}:
            raise self.draft.ctx.fail(
                "PSK-2004", "SESSION needs an event-time column with a watermark", self.draft.select
            )
        end = self.window.closing_key(keys)
        windowed = end is not None or session is not None
        mode = EmitMode.CLOSE if windowed and self.draft.ctx.closing else EmitMode.CHANGES

        def over(chosen: list[Named]) -> Aggregate:
            return Aggregate(self.draft.node, tuple(chosen), tuple(calls), mode, end, session)

        if sets is None:
            return over(keys)
        every = [k for k in keys if k.expr.sql() in grouping]
        always = [k for k in keys if k not in every]
        branches: list[Node] = []
        for one in sets:
            keys = [*(k for k in every if k in one), *always]
            # Unlike an aggregate without GROUP BY, the empty grouping set has no group over no rows. So it gets a constant key.
            made = over(keys or [Named(self.draft.ctx.fresh("all"), Expr(exp.Literal.number(1)))])
            items = [Named(k.name, col(k.name) if k in one else Expr(exp.Null())) for k in every]
            items += [
                Named(n, col(n))
                for n in (*(k.name for k in always), *((session.start, session.end) if session else ()))
            ]
            items += [Named(c.name, col(c.name)) for c in calls]
            items += [Named(grouping[k.expr.sql()], Expr(exp.Literal.number(0 if k in one else 1))) for k in every]
            branches.append(Project(made, tuple(items)))
        return branches[0] if len(branches) == 1 else Union(tuple(branches))


def _on_nothing(call: AggCall) -> Expr:
    """The value of an aggregate over no rows, for a column that is NULL if the row is missing."""
    match call.of_nothing:
        case OfNothing.NULL:
            return col(call.name)
        case OfNothing.ZERO:
            empty: exp.Expression = exp.Literal.number(0)
        case OfNothing.EMPTY:
            empty = exp.Array()
        case OfNothing.UNKNOWN:
            raise CannotDecorrelate
    return Expr(exp.Coalesce(this=column(call.name), expressions=[empty]))


def _replaced(node: exp.Expression, values: dict[str, exp.Expression]) -> exp.Expression:
    def change(n: exp.Expression) -> exp.Expression:
        return values[n.name].copy() if isinstance(n, exp.Column) else n

    return node.copy().transform(change)
