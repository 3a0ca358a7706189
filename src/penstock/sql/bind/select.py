"""One SELECT block: FROM → WHERE → GROUP BY → HAVING → OVER → QUALIFY → SELECT → DISTINCT → ORDER BY … LIMIT."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.nodes import (
    AggCall,
    Aggregate,
    Distinct,
    Expr,
    Filter,
    Mode,
    Named,
    Node,
    Project,
    Session,
    SortKey,
    TemporalFilter,
    TopN,
    Union,
    WindowAssign,
    col,
)
from penstock.sql.bind.aggregates import Grouped, has_aggregate, sort_keys
from penstock.sql.bind.analytic import Analytics
from penstock.sql.bind.block import Block
from penstock.sql.bind.context import Context
from penstock.sql.bind.exprs import ExprBinder, all_of, column, conjuncts, to_expr, type_of, walk_block
from penstock.sql.bind.generators import generate
from penstock.sql.bind.grouping import grouping_sets
from penstock.sql.bind.naming import output_name
from penstock.sql.bind.relations import BindQuery, Ctes, From
from penstock.sql.bind.scope import Col, Relation, Scope
from penstock.sql.bind.subqueries import Lift, Subqueries
from penstock.sql.bind.temporal import Bounds, has_now
from penstock.sql.bind.windows import WindowSpec, bound_of, window_kind, window_spec
from penstock.sql.functions import generator_name, is_now
from penstock.sql.trees import bare

Items = list[tuple[exp.Expression, str]]
_KNOWN = {
    "expressions", "from_", "joins", "laterals", "where", "group", "having", "qualify", "windows", "distinct", "order", "limit", "offset",
    "with_", "kind",
}  # fmt: skip


class _Hooked(ExprBinder):
    """Also understands the window calls of a windowed query; now() is refused."""

    window: tuple[WindowSpec, str, str] | None = None

    def _bind(self, node: exp.Expression) -> exp.Expression:
        if is_now(node):
            raise self.ctx.fail("PSK-2007", "now() cannot stand here", node)
        half = bound_of(node)
        kind = window_kind(node)
        if half is None and kind is None:
            return super()._bind(node)
        assert isinstance(node, exp.Anonymous)
        if self.window is None:
            raise self.ctx.fail(
                "PSK-2003", f"{node.name.removeprefix('__').upper()} needs the same window in GROUP BY", node
            )
        spec, start, end = self.window
        wanted = kind or (half[0] if half else None)
        if node.expressions:
            assert wanted is not None
            own = window_spec(self.ctx, wanted, super()._bind(node.expressions[0]), list(node.expressions[1:]), node)
            if own != spec:
                raise self.ctx.fail("PSK-2003", "this window is not the one in GROUP BY", node)
        elif wanted != spec.kind or kind is not None:
            raise self.ctx.fail("PSK-2003", "this window is not the one in GROUP BY", node)
        return column(end if half is not None and half[1] == "end" else start)


class SelectBinder:
    """Binds one block. `outer` is the scope of the query around it, for correlated names."""

    def __init__(
        self, ctx: Context, select: exp.Select, outer: Scope | None, ctes: Ctes, bind_query: BindQuery
    ) -> None:
        self.ctx = ctx
        self.select = select
        self.scope = Scope(outer=outer)
        self.ctes = ctes
        self.bind_query = bind_query
        self.correlated: list[exp.Expression] = []
        self.aliases = {e.alias.lower(): e.this for e in select.expressions if isinstance(e, exp.Alias)}
        self.window: tuple[WindowSpec, str, str] | None = None
        self.session: Session | None = None
        self.subqueries = Subqueries(ctx, bind_query, ctes)
        self.node: Node

    def bind(self) -> Block:
        for key, value in self.select.args.items():
            if value and key not in _KNOWN:
                raise self.ctx.fail(
                    "PSK-1012",
                    f"{key.strip('_').upper()} is not supported in a query",
                    value if isinstance(value, exp.Expression) else self.select,
                )
        if not self.select.expressions:
            raise self.ctx.fail("PSK-1001", "SELECT has no columns", self.select)
        where = self.select.args.get("where")
        source = From(self.ctx, self.ctes, self.bind_query, self.scope, conjuncts(where.this) if where else [])
        self.node = source.bind(self.select)
        self._where(source.where)
        items = self._items()
        grouped = (
            bool(self.select.args.get("group")) or any(has_aggregate(i) for i, _ in items) or self._having_aggregates()
        )
        return self._aggregated(items) if grouped else self._plain(items)

    # -- WHERE ---------------------------------------------------------------------------------------------------------

    def _where(self, parts: list[exp.Expression]) -> None:
        plain: list[exp.Expression] = []
        bounds = Bounds(self.ctx, ExprBinder(self.ctx, self.scope))
        for part in parts:
            if has_aggregate(part) or any(isinstance(n, exp.Window) for n in walk_block(part)):
                raise self.ctx.fail(
                    "PSK-1019",
                    "aggregates and analytic functions cannot stand in WHERE",
                    part,
                    hint="Use HAVING or QUALIFY.",
                )
            if self.subqueries.is_predicate(part):
                self.node = self.subqueries.predicate(self.node, self.scope, part)
            elif has_now(part):
                bounds.add(part)
            else:
                node = self._binder(attach=True).bind(part)
                if self._outer_refs(node):
                    self.correlated.append(node)
                else:
                    plain.append(node)
        if plain:
            self.node = Filter(self.node, to_expr(self.ctx, all_of(plain), parts[0]))
        enter, leave = bounds.result()
        if enter is not None or leave is not None:
            self.node = TemporalFilter(self.node, enter, leave)

    def _outer_refs(self, node: exp.Expression) -> frozenset[str]:
        return Expr(node).refs - frozenset(self.node.columns)

    def _binder(self, *, aliases: bool = False, attach: bool = False) -> _Hooked:
        binder = _Hooked(
            self.ctx, self.scope, self.aliases if aliases else None, self._attach if attach else self.subqueries.later
        )
        binder.window = self.window
        return binder

    def _attach(self, node: exp.Expression) -> exp.Expression:
        self.node, value = self.subqueries.scalar(self.node, self.scope, node)
        return value

    # -- the select list -----------------------------------------------------------------------------------------------

    def _items(self) -> Items:
        """(parsed expression, output name), stars expanded, generators put under the list."""
        out: Items = []
        for item in self.select.expressions:
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                out += self._star(item)
                continue
            core = item.this if isinstance(item, (exp.Alias, exp.Aliases)) else item
            if generator_name(core) is not None:
                out += self._generator(item, core)
            elif isinstance(item, exp.Aliases):
                raise self.ctx.fail("PSK-1012", "only a generator has several aliases", item)
            else:
                out.append((core, output_name(item)))
        return out

    def _star(self, item: exp.Expression) -> Items:
        star = item if isinstance(item, exp.Star) else item.this
        if isinstance(item, exp.Column):
            relation = self.scope.relation(item.table)
            if relation is None:
                raise self.ctx.fail("PSK-1002", f"{item.table} is not in FROM", item)
            cols = list(relation.cols)
        else:
            cols = list(self.scope.visible())
        for key, value in star.args.items():
            if value and key != "except_":
                raise self.ctx.fail("PSK-1012", f"* {key.strip('_').upper()} is not supported", item)
        dropped = {c.name.lower(): c for c in star.args.get("except_") or []}
        known = {c.name.lower() for c in cols}
        for name, node in dropped.items():
            if name not in known:
                raise self.ctx.fail("PSK-1004", f"unknown column {node.name}", node)
        if not cols:
            raise self.ctx.fail("PSK-1012", "* has no columns here", item)
        return [(self._internal(c.internal), c.name) for c in cols if c.name.lower() not in dropped]

    def _internal(self, internal: str) -> exp.Expression:
        """A parsed-looking reference that can only mean this column."""
        relation = self.scope.relation("__star")
        if relation is None:
            every = tuple(Col(c.internal, c.internal, hidden=True) for r in self.scope.relations for c in r.cols)
            self.scope.relations.append(Relation("__star", every))
        return exp.Column(
            this=exp.Identifier(this=internal, quoted=True), table=exp.Identifier(this="__star", quoted=True)
        )

    def _generator(self, item: exp.Expression, core: exp.Expression) -> Items:
        if self.select.args.get("group"):
            raise self.ctx.fail(
                "PSK-1012",
                "a generator cannot stand in a grouped SELECT",
                item,
                hint="Put it into a derived table or LATERAL VIEW.",
            )
        names = (
            [i.name for i in item.expressions]
            if isinstance(item, exp.Aliases)
            else [item.alias]
            if isinstance(item, exp.Alias)
            else None
        )
        self.node, cols = generate(self.ctx, self.node, core, self._binder(), names, False)
        self.scope.relations.append(Relation(None, tuple(Col(c.name, c.internal, hidden=True) for c in cols)))
        self.scope.relations = [r for r in self.scope.relations if r.alias != "__star"]
        return [(self._internal(c.internal), c.name) for c in cols]

    # -- without GROUP BY ----------------------------------------------------------------------------------------------

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
        return self._finish(items, bound, self._resolved)

    def _resolved(self, node: exp.Expression, origin: exp.Expression | None) -> exp.Expression:
        """QUALIFY and ORDER BY: their subqueries are attached when they are read."""
        self.node, node = self.subqueries.resolve(self.node, self.scope, node, lambda n, _: n)
        return node

    # -- with GROUP BY -------------------------------------------------------------------------------------------------

    def _having_aggregates(self) -> bool:
        having = self.select.args.get("having")
        return having is not None and has_aggregate(having.this)

    def _aggregated(self, items: Items) -> Block:
        plain, sets = self._group_parts(items)
        window_keys = self._windows(plain, sets, items)
        keys: list[Named] = []
        for node in plain:
            self._add_key(keys, node)
        set_keys = [[self._add_key(keys, node) for node in one] for one in sets] if sets is not None else None
        inner = self._correlated_keys(keys)
        keys += window_keys
        for node in [*plain, *(n for one in sets or [] for n in one)]:
            if has_aggregate(node):
                raise self.ctx.fail("PSK-1019", "an aggregate cannot be a group key", node)
        hidden = self._hidden_end(keys)
        keys += hidden
        grouping: dict[str, str] = {}
        if set_keys is not None:
            for one in set_keys:
                for k in one:
                    grouping.setdefault(k.expr.sql(), self.ctx.fresh("grouping"))
        grouped = Grouped(self.ctx, [*keys, *self._session_keys()], grouping)
        bound = []
        for core, _ in items:
            binder = self._binder()
            binder.aliases = {n.lower(): e for e, n in items if n.lower() in self.aliases}
            bound.append(grouped.rewrite(binder.bind(core), core))
        having = self.select.args.get("having")
        condition = None
        if having is not None:
            parts = [grouped.rewrite(self._binder(aliases=True).bind(p), p) for p in conjuncts(having.this)]
            condition = all_of(parts)
        self._prepare(grouped)
        for call in grouped.calls:
            for arg in (*call.args, *((call.filter,) if call.filter else ())):
                if arg.refs - frozenset(self.node.columns):
                    raise self.ctx.fail(
                        "PSK-1012", "an aggregate over columns of the outer query is not supported", self.select
                    )
        self.node = self._aggregate(keys, grouped.calls, set_keys, grouping)
        if condition is not None:
            condition = self._late(condition, grouped)
            self.node = Filter(self.node, to_expr(self.ctx, condition, having))
        bound = [self._late(b, grouped) for b in bound]
        block = self._finish(
            items, bound, lambda node, origin: self._late(grouped.rewrite(node, origin), grouped), inner
        )
        scalar = not self.select.args.get("group")
        block.single = block.single or scalar
        block.total = scalar and having is None
        core = bare(items[0][0])
        counts = isinstance(core, (exp.Count, exp.CountIf)) or (
            isinstance(core, exp.Filter) and isinstance(core.this, exp.Count)
        )
        block.counts = counts and len(items) == 1
        block.mixed_count = not block.counts and any(_not_null_on_nothing(core) for core, _ in items)
        return block

    def _prepare(self, grouped: Grouped) -> None:
        """Registers the aggregates of ORDER BY and QUALIFY before the Aggregate is built."""
        for key in ("order", "qualify"):
            clause = self.select.args.get(key)
            if clause is None:
                continue
            for part in clause.expressions if key == "order" else [clause.this]:
                core = part.this if isinstance(part, exp.Ordered) else part
                if has_aggregate(core):
                    grouped.rewrite(self._binder(aliases=True).bind(core), core)

    def _late(self, node: exp.Expression, grouped: Grouped) -> exp.Expression:
        """Attaches the scalar subqueries of an expression over the Aggregate."""
        self.node, node = self.subqueries.resolve(self.node, self.scope, node, grouped.rewrite)
        return node

    def _group_parts(self, items: Items) -> tuple[list[exp.Expression], list[list[exp.Expression]] | None]:
        group = self.select.args.get("group")
        if group is None:
            return [], None
        if group.args.get("all"):
            return [core for core, _ in items if not has_aggregate(core)], None
        return grouping_sets(self.ctx, group, lambda n: self._named(n, items))

    def _named(self, node: exp.Expression, items: Items) -> exp.Expression:
        """An ordinal or an alias in GROUP BY as the expression it stands for."""
        inner = bare(node)
        if isinstance(inner, exp.Literal) and inner.is_int:
            n = int(inner.name)
            if not 1 <= n <= len(items):
                raise self.ctx.fail("PSK-1004", f"GROUP BY {n}: there are {len(items)} selected columns", node)
            return items[n - 1][0]
        if isinstance(inner, exp.Column) and not inner.table and not self.scope.find(inner.name):
            found = next(
                (e for e, name in items if name.lower() == inner.name.lower() and name.lower() in self.aliases), None
            )
            if found is not None:
                return found
        return inner

    def _windows(
        self, plain: list[exp.Expression], sets: list[list[exp.Expression]] | None, items: Items
    ) -> list[Named]:
        """Takes the window call out of the keys and puts its WindowAssign (or session) in place."""
        calls = [n for n in plain if window_kind(n)]
        if any(window_kind(n) for one in sets or [] for n in one):
            raise self.ctx.fail(
                "PSK-2003",
                "a window cannot stand inside GROUPING SETS, ROLLUP or CUBE",
                self.select,
                hint="Group by it beside them.",
            )
        texts = {c.sql() for c in calls}
        if len(texts) > 1:
            raise self.ctx.fail("PSK-2003", "GROUP BY has two windows", calls[1])
        if not calls:
            return []
        call = calls[0]
        plain[:] = [n for n in plain if not window_kind(n)]
        kind = window_kind(call)
        assert kind is not None
        if not call.expressions:
            raise self.ctx.fail("PSK-2003", f"{kind.upper()} needs a time column and an interval", call)
        time = self._binder().bind(call.expressions[0])
        spec = window_spec(self.ctx, kind, time, list(call.expressions[1:]), call)
        prefix = self.ctx.fresh("window")
        start, end = f"{prefix}$start", f"{prefix}$end"
        known = type_of(self.ctx, time)
        if known is not None:
            self.ctx.types[start] = self.ctx.types[end] = known
        self.window = (spec, start, end)
        # In a windowed query window_start and window_end are its own; columns of that name need their table.
        shadowed = frozenset(
            c.internal
            for c in self.scope.visible()
            if c.name.lower() in ("window_start", "window_end") and not self._is_key(c, plain)
        )
        self.scope.relations = [r.hide(shadowed) for r in self.scope.relations]
        self.scope.relations.append(Relation(None, (Col("window_start", start), Col("window_end", end))))
        if spec.kind == "session":
            self.session = Session(to_expr(self.ctx, time), spec.size, start, end)
            return []
        self.node = WindowAssign(
            self.node, spec.kind, to_expr(self.ctx, time), spec.size, spec.step, spec.offset, start, end
        )
        return [Named(start, col(start)), Named(end, col(end))]

    def _is_key(self, c: Col, plain: list[exp.Expression]) -> bool:
        return any(isinstance(n, exp.Column) and not n.table and n.name.lower() == c.name.lower() for n in plain)

    def _session_keys(self) -> list[Named]:
        if self.session is None:
            return []
        return [Named(n, col(n)) for n in (self.session.start, self.session.end)]

    def _add_key(self, keys: list[Named], node: exp.Expression) -> Named:
        bound = self._binder(attach=True).bind(node)
        if self._outer_refs(bound):
            raise self.ctx.fail("PSK-1012", "GROUP BY cannot use columns of the outer query", node)
        expr = to_expr(self.ctx, bound, node)
        for k in keys:
            if k.expr == expr:
                return k
        name = expr.column or self.ctx.fresh("key")
        if expr.column is None and (known := type_of(self.ctx, bound)) is not None:
            self.ctx.types[name] = known
        keys.append(Named(name, expr))
        return keys[-1]

    def _correlated_keys(self, keys: list[Named]) -> list[str]:
        """In a correlated aggregate the inner sides of its equalities become keys; the conditions are then over those keys."""
        inner: list[str] = []
        mine = frozenset(self.node.columns)
        for i, part in enumerate(self.correlated):
            sides = (part.this, part.expression) if isinstance(part, exp.EQ) else ()
            own = next((s for s in sides if Expr(s).refs and Expr(s).refs <= mine), None)
            other = next((s for s in sides if s is not own and not Expr(s).refs & mine), None)
            if own is None or other is None:
                raise self.ctx.fail("PSK-1012", "an aggregate can be correlated by equalities only", self.select)
            expr = to_expr(self.ctx, bare(own))
            name = next((k.name for k in keys if k.expr == expr), None)
            if name is None:
                name = expr.column or self.ctx.fresh("key")
                keys.append(Named(name, expr))
            self.correlated[i] = exp.EQ(this=column(name), expression=other.copy())
            inner.append(name)
        return inner

    def _assigned(self) -> list[WindowAssign]:
        """Window assignments below, not counting those under an aggregate."""
        out: list[WindowAssign] = []
        stack: list[Node] = [self.node]
        while stack:
            n = stack.pop()
            if isinstance(n, WindowAssign):
                out.append(n)
            if not isinstance(n, Aggregate):
                stack.extend(n.children)
        return out

    def _hidden_end(self, keys: list[Named]) -> list[Named]:
        """Grouping by window_start of a table function alone: its end goes with it, so that the group can close."""
        named = {k.expr.column for k in keys}
        for w in self._assigned():
            if w.start in named and w.end not in named and w.kind != "cumulate" and w.end in self.node.columns:
                return [Named(w.end, col(w.end))]
        return []

    def _window_end(self, keys: list[Named]) -> str | None:
        named = {k.expr.column: k.name for k in keys}
        for w in self._assigned():
            if w.end in named and w.time.column in {t.column for t in w.child.times}:
                return named[w.end]
        return None

    def _aggregate(
        self, keys: list[Named], calls: list[AggCall], sets: list[list[Named]] | None, grouping: dict[str, str]
    ) -> Node:
        session = self.session
        if session is not None and session.time.column not in {t.column for t in self.node.times}:
            raise self.ctx.fail("PSK-2004", "SESSION needs an event-time column with a watermark", self.select)
        end = self._window_end(keys)
        windowed = end is not None or session is not None
        mode = Mode.CLOSE if windowed and self.ctx.closing else Mode.CHANGES

        def over(chosen: list[Named]) -> Aggregate:
            return Aggregate(self.node, tuple(chosen), tuple(calls), mode, end, session)

        if sets is None:
            return over(keys)
        every = [k for k in keys if k.expr.sql() in grouping]
        always = [k for k in keys if k not in every]
        branches: list[Node] = []
        for one in sets:
            keys = [*(k for k in every if k in one), *always]
            # Over no rows the empty set has no group, unlike an aggregate without GROUP BY; so it has a constant key.
            made = over(keys or [Named(self.ctx.fresh("all"), Expr(exp.Literal.number(1)))])
            items = [Named(k.name, col(k.name) if k in one else Expr(exp.Null())) for k in every]
            items += [
                Named(n, col(n))
                for n in (*(k.name for k in always), *((session.start, session.end) if session else ()))
            ]
            items += [Named(c.name, col(c.name)) for c in calls]
            items += [Named(grouping[k.expr.sql()], Expr(exp.Literal.number(0 if k in one else 1))) for k in every]
            branches.append(Project(made, tuple(items)))
        return branches[0] if len(branches) == 1 else Union(tuple(branches))

    # -- OVER, QUALIFY, SELECT, DISTINCT, ORDER BY, LIMIT ----------------------------------------------------------------

    def _finish(self, items: Items, bound: list[exp.Expression], lift: Lift, inner: list[str] | None = None) -> Block:
        analytics = Analytics(self.ctx, self._named_windows(lift))
        bound = [analytics.extract(b, items[i][0]) for i, b in enumerate(bound)]
        qualify = self.select.args.get("qualify")
        condition = None
        if qualify is not None:
            node = lift(self._binder(aliases=True).bind(qualify.this), qualify.this)
            condition = analytics.extract(node, qualify.this)
        order = self._order(items, bound, lift, analytics)
        self.node = analytics.apply(self.node)
        if condition is not None:
            self.node = Filter(self.node, to_expr(self.ctx, condition, qualify))
        for (core, _), b in zip(items, bound, strict=True):
            if self._outer_refs(b):
                raise self.ctx.fail("PSK-1012", "a selected column of the outer query is not supported here", core)
        outputs, cols = self._outputs(items, bound)
        shown = {n.name for n in outputs}
        extra = self._extra(order, outputs, shown)
        kept = self._exposed(inner, shown | {e.name for e in extra})
        if self.select.args.get("distinct") is not None:
            if self.select.args["distinct"].args.get("on"):
                raise self.ctx.fail(
                    "PSK-1012", "DISTINCT ON is not supported", self.select, hint="Use ROW_NUMBER() … QUALIFY rn = 1."
                )
            if extra:
                raise self.ctx.fail("PSK-1019", "with DISTINCT, ORDER BY uses selected columns only", self.select)
        self.node = Project(self.node, (*outputs, *extra, *kept))
        if self.select.args.get("distinct") is not None:
            self.node = Distinct(self.node)
        block = Block(self.node, cols, self.correlated)
        limited(self.ctx, block, self.select, order)
        if extra:
            keep = [*outputs, *kept]
            block.node = Project(block.node, tuple(Named(n.name, col(n.name)) for n in keep))
        return block

    def _named_windows(self, lift: Lift) -> list[exp.Expression]:
        out = []
        for w in self.select.args.get("windows") or []:
            made = w.copy()
            for key in ("partition_by", "order"):
                value = w.args.get(key)
                if isinstance(value, list):
                    made.set(key, [lift(self._binder().bind(v), v) for v in value])
                elif value is not None:
                    made.set(
                        key,
                        exp.Order(
                            expressions=[
                                _ordered(o, lift(self._binder().bind(o.this), o.this)) for o in value.expressions
                            ]
                        ),
                    )
            out.append(made)
        return out

    def _order(self, items: Items, bound: list[exp.Expression], lift: Lift, analytics: Analytics) -> list[SortKey]:
        clause = self.select.args.get("order")
        if clause is None:
            return []
        names = [n.lower() for _, n in items]
        out: list[exp.Expression] = []
        for item in clause.expressions:
            core = item.this if isinstance(item, exp.Ordered) else item
            inner = bare(core)
            if isinstance(inner, exp.Literal) and inner.is_int:
                n = int(inner.name)
                if not 1 <= n <= len(items):
                    raise self.ctx.fail("PSK-1004", f"ORDER BY {n}: there are {len(items)} selected columns", core)
                node = bound[n - 1].copy()
            elif isinstance(inner, exp.Column) and not inner.table and names.count(inner.name.lower()) == 1:
                node = bound[names.index(inner.name.lower())].copy()
            else:
                node = analytics.extract(lift(self._binder(aliases=True).bind(core), core), core)
            out.append(_ordered(item, node))
        return list(sort_keys(self.ctx, out))

    def _outputs(self, items: Items, bound: list[exp.Expression]) -> tuple[list[Named], list[Col]]:
        outputs: list[Named] = []
        cols: list[Col] = []
        used: set[str] = set()
        for (core, name), node in zip(items, bound, strict=True):
            expr = to_expr(self.ctx, node, core)
            internal = expr.column
            if internal is None or internal in used:
                internal = self.ctx.fresh(name.replace("$", "_"))
                known = type_of(self.ctx, node)
                if known is not None:
                    self.ctx.types[internal] = known
            used.add(internal)
            outputs.append(Named(internal, expr))
            cols.append(Col(name, internal))
        return outputs, cols

    def _extra(self, order: list[SortKey], outputs: list[Named], shown: set[str]) -> list[Named]:
        """Sort keys that are not selected ride along; every key becomes a column of the projection."""
        extra: list[Named] = []
        for i, key in enumerate(order):
            hit = next((o for o in (*outputs, *extra) if o.expr == key.expr), None)
            if hit is None:
                name = key.expr.column
                if name is None or name in shown:
                    name = self.ctx.fresh("sort")
                hit = Named(name, key.expr)
                extra.append(hit)
            order[i] = SortKey(col(hit.name), key.desc, key.nulls_first)
        return extra

    def _exposed(self, inner: list[str] | None, shown: set[str]) -> list[Named]:
        """The columns that correlated conditions need."""
        mine = set(self.node.columns)
        refs = {r for part in self.correlated for r in Expr(part).refs if r in mine}
        refs |= set(inner or [])
        return [Named(r, col(r)) for r in sorted(refs - shown)]


def _not_null_on_nothing(node: exp.Expression) -> bool:
    """True if an output over aggregates of no rows may be something else than NULL."""
    return (
        node.find(exp.Count, exp.CountIf, exp.Coalesce, exp.Case, exp.If, exp.Is, exp.Literal, exp.Boolean) is not None
    )


def _ordered(item: exp.Expression, node: exp.Expression) -> exp.Expression:
    if isinstance(item, exp.Ordered):
        return exp.Ordered(this=node, desc=item.args.get("desc"), nulls_first=item.args.get("nulls_first"))
    return exp.Ordered(this=node)


def limited(ctx: Context, block: Block, query: exp.Expression, order: list[SortKey]) -> None:
    """ORDER BY … LIMIT n OFFSET m as a TopN over `block`; ORDER BY alone is refused."""
    limit, offset = query.args.get("limit"), query.args.get("offset")
    if limit is None and offset is None:
        if order:
            raise ctx.fail("PSK-4001", "ORDER BY without LIMIT has no end on a stream", query.args["order"])
        return
    odd = (
        [k for k, v in limit.args.items() if v and k not in ("this", "expression", "count", "direction")]
        if limit
        else []
    )
    if odd:
        raise ctx.fail(
            "PSK-1012", f"LIMIT takes a number of rows alone, without {odd[0].replace('_', ' ').upper()}", limit
        )
    amount = (
        limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression if limit is not None else None
    )
    count = _whole(ctx, amount, "LIMIT") if limit is not None else None
    skip = _whole(ctx, offset.expression, "OFFSET") if offset is not None else 0
    if count is None and order:
        raise ctx.fail("PSK-4001", "ORDER BY with OFFSET alone has no end on a stream", query.args["order"])
    own = frozenset(block.node.columns)
    partition = []
    for part in block.correlated:
        side = next((s for s in (part.this, part.expression) if isinstance(part, exp.EQ) and Expr(s).refs <= own), None)
        if side is None:
            raise ctx.fail("PSK-1012", "LIMIT in a query that is not correlated by equality", query)
        partition.append(to_expr(ctx, side))
    block.node = TopN(block.node, tuple(partition), tuple(order), count, skip)
    block.single = block.single or count == 1


def _whole(ctx: Context, node: exp.Expression | None, what: str) -> int:
    if isinstance(node, exp.Literal) and node.is_int:
        return int(node.name)
    raise ctx.fail("PSK-1012", f"{what} takes a whole number", node)
