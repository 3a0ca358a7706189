"""FROM: tables, derived tables, window table functions, generators and joins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import takewhile

from sqlglot import exp

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.plan.nodes import (
    Expr,
    JoinKind,
    Named,
    Node,
    Project,
    Scan,
    SessionWindow,
    TimeAttr,
    Values,
    WindowAssign,
    col,
)
from penstock.sql.bind import pivots
from penstock.sql.bind.block import Block
from penstock.sql.bind.context import Context, qualified
from penstock.sql.bind.correlation import CannotDecorrelate
from penstock.sql.bind.ctes import is_object
from penstock.sql.bind.expansion import expanding, expansion
from penstock.sql.bind.exprs import ExprBinder, column, conjuncts, to_expr, type_of
from penstock.sql.bind.extras import refuse_extras, refuse_join
from penstock.sql.bind.generators import generate, refuse_files, refuse_view
from penstock.sql.bind.joins import JOIN_KINDS, regular_join
from penstock.sql.bind.lookups import current_lookup, is_lookup, lookup
from penstock.sql.bind.onsubqueries import OnSubqueries
from penstock.sql.bind.recursion import Recursion, Reference
from penstock.sql.bind.scope import Col, Relation, Scope
from penstock.sql.bind.sessions import sessions
from penstock.sql.bind.timejoins import TimeJoins
from penstock.sql.bind.using import equalities_of, merged
from penstock.sql.bind.windows import window_kind, window_spec
from penstock.sql.functions import generator_name
from penstock.sql.names import suggestion
from penstock.sql.rewrite import PARTITION
from penstock.sql.trees import bare

Ctes = dict[str, tuple[exp.Expression | Recursion | Reference, "Ctes", tuple[str, ...]]]
BindQuery = Callable[[exp.Expression, Scope | None, Ctes], Block]


@dataclass
class From:
    """The plan and the names of a FROM clause, built join by join."""

    ctx: Context
    ctes: Ctes
    bind_query: BindQuery
    scope: Scope
    where: list[exp.Expression] = field(default_factory=list)
    start: Node | None = None
    """The domain of a correlated subquery, which the items of FROM are joined to."""
    _covered: bool = False
    """A RIGHT or FULL join follows, so WHERE conditions on its left side must not become conditions of a join below it."""

    @property
    def _times(self) -> TimeJoins:
        return TimeJoins(self.ctx)

    def bind(self, select: exp.Select) -> Node:
        source = select.args.get("from_")
        if source is None:
            name = self.ctx.fresh("one$x")
            node: Node = self.start or Values((name,), ((Expr(exp.Literal.number(1)),),))
        else:
            node = self._first(source.this)
            for join in source.this.args.get("joins") or []:
                node = self.join(node, join)
        joins = list(select.args.get("joins") or [])
        for join in joins:
            if join.args.get("pivots"):
                refuse_extras(self.ctx, join, tuple(k for k in join.args if k != "pivots"))
        while joins:
            run = list(takewhile(self._is_comma, joins)) or joins[:1]
            here, joins = joins[: len(run)], joins[len(run) :]
            self._covered = any((j.side or "").upper() in ("RIGHT", "FULL") for j in joins)
            node = self._listed(node, here) if len(here) > 1 else self.join(node, here[0])
        for lateral in select.args.get("laterals") or []:
            node = self.lateral_view(node, lateral)
        return node

    def _first(self, item: exp.Expression) -> Node:
        if self.start is not None and isinstance(item, exp.Unnest):
            return self._generated(self.start, item, outer=False)
        if self.start is not None and self._depends(item):
            return self._lateral(self.start, exp.Join(this=item), item.this, Scope(outer=self.scope.outer))
        node, relation = self.item(item)
        self.add(relation, item)
        if self.start is None:
            return node
        bound = self._from_where(self.start, node)
        return self._joined(self.start, node, "inner", bound, None, ExprBinder(self.ctx, self.scope), item, True)

    def add(self, relation: Relation, origin: exp.Expression) -> None:
        if relation.alias is not None and self.scope.relation(relation.alias) is not None:
            raise self.ctx.fail(
                "PSK-1005", f"{relation.alias} is used twice in FROM", origin, hint="Give one of them another alias."
            )
        self.scope.relations.append(relation)

    # -- items ---------------------------------------------------------------------------------------------------------

    def item(self, node: exp.Expression) -> tuple[Node, Relation]:
        if node.args.get("pivots"):
            return self._derived(pivots.written_out(self.ctx, node, self._columns))
        if isinstance(node, exp.Table) and generator_name(node.this) is not None:
            refuse_extras(self.ctx, node, ("this", "alias", "joins"))
            return self.item(exp.Lateral(this=node.this, alias=node.args.get("alias")))
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Anonymous):
            refuse_files(self.ctx, node.this)
            return self._window_function(node)
        if isinstance(node, exp.Table):
            return self._table(node)
        if isinstance(node, exp.Subquery):
            return self._derived(node)
        if isinstance(node, exp.Values):
            block = self.bind_query(node, None, self.ctes)
            return block.node, self._aliased(block.cols, node, "values")
        if isinstance(node, (exp.Unnest, exp.Lateral)):
            name = self.ctx.fresh("one$x")
            start = Values((name,), ((Expr(exp.Literal.number(1)),),))
            before = len(self.scope.relations)
            made = self._generated(start, node, outer=False)
            relation = self.scope.relations.pop()
            assert len(self.scope.relations) == before
            return made, relation
        raise self.ctx.fail("PSK-1012", "this is not allowed in FROM", node)

    def _columns(self, node: exp.Expression) -> pivots.Columns:
        return [(c.name, self.ctx.types.get(c.internal)) for c in self.item(node)[1].cols]

    def _table(self, node: exp.Table) -> tuple[Node, Relation]:
        if node.args.get("db"):
            raise qualified(self.ctx, node)
        refuse_extras(self.ctx, node, ("this", "alias", "joins"))
        name = node.name
        cte = self.ctes.get(name.lower()) if not is_object(node) else None
        if cte is not None:
            ast, env, columns = cte
            if isinstance(ast, Reference):
                return ast.node, self._aliased(list(ast.cols), node, name)
            if isinstance(ast, Recursion):
                block = ast.bind(self.ctx, self.bind_query, env, columns, node)
            else:
                block = self.bind_query(ast, None, env)
            cols = self._renamed(block.cols, columns, node)
            return block.node, self._aliased(cols, node, name)
        info = self.ctx.catalog.get(name)
        if info is None:
            known = [*self.ctx.catalog.names(), *self.ctes]
            raise self.ctx.fail("PSK-1002", f"{name} is not found", node.this, hint=suggestion(name, known))
        if info.kind in (Kind.SINK, Kind.FUNCTION):
            raise self.ctx.fail("PSK-1008", f"{info.name} is a {info.kind.value} and cannot be read", node.this)
        if info.kind is Kind.NAMED_QUERY:
            with expanding(self.ctx, info, node):
                block = self.bind_query(expansion(self.ctx, info, node), None, {})
                cols = self._renamed(block.cols, tuple(c.name for c in info.columns), node)
            return block.node, self._aliased(cols, node, info.name)
        scan, cols = self._scan(info, str(node.alias or info.name))
        return scan, self._aliased(cols, node, info.name)

    def _scan(self, info: ObjectInfo, alias: str) -> tuple[Scan, list[Col]]:
        prefix = self.ctx.fresh(alias.replace("$", "_"))
        internal = {c.name: f"{prefix}${c.name}" for c in info.columns}
        for c in info.columns:
            self.ctx.types[internal[c.name]] = c.type
        self.ctx.kinds[info.id] = info.kind
        times = tuple(TimeAttr(internal[t.column], t.lag_ms) for t in info.times if t.column in internal)
        types = tuple((internal[c.name], c.type) for c in info.columns)
        scan = Scan(
            info.name, info.id, tuple((i, n) for n, i in internal.items()), info.changelog, times, types, info.key
        )
        return scan, [Col(n, i) for n, i in internal.items()]

    def _derived(self, node: exp.Subquery) -> tuple[Node, Relation]:
        refuse_extras(self.ctx, node, ("this", "alias"))
        if isinstance(node.this, exp.Table):
            inner = From(self.ctx, self.ctes, self.bind_query, Scope(outer=self.scope.outer))
            made, relation = inner.item(node.this)
            inner.add(relation, node.this)
            for join in node.this.args.get("joins") or []:
                made = inner.join(made, join)
            if node.alias:
                return made, self._aliased(list(inner.scope.visible()), node, node.alias)
            for r in inner.scope.relations[:-1]:
                self.add(r, node)
            return made, inner.scope.relations[-1]
        block = self.bind_query(node.this, self._around(), self.ctes)
        if block.correlated:
            raise CannotDecorrelate
        return block.node, self._aliased(block.cols, node, None)

    def _around(self) -> Scope | None:
        """What a derived table can refer to: the queries around this one, and nothing beside it."""
        return None if self.scope.outer is None else Scope(outer=self.scope.outer)

    def _depends(self, item: exp.Expression) -> bool:
        """True for a derived table that uses columns of the outer query. Only over a domain: elsewhere it cannot be bound."""
        if self.start is None or not isinstance(item, exp.Subquery) or not isinstance(item.this, exp.Query):
            return False
        try:
            self.item(item)
        except CannotDecorrelate:
            return True
        return False

    def _aliased(self, cols: list[Col], node: exp.Expression, default: str | None) -> Relation:
        alias = node.args.get("alias")
        columns = tuple(c.name for c in alias.columns) if isinstance(alias, exp.TableAlias) else ()
        name = (alias.name if isinstance(alias, exp.TableAlias) else "") or default
        return Relation(name or None, tuple(self._renamed(cols, columns, node)))

    def _renamed(self, cols: list[Col], names: tuple[str, ...], node: exp.Expression) -> list[Col]:
        if not names:
            return [replace(c, hidden=False) for c in cols]
        if len(names) != len(cols):
            raise self.ctx.fail("PSK-1016", f"{len(names)} column names for {len(cols)} columns", node)
        return [replace(c, name=n, hidden=False) for n, c in zip(names, cols, strict=True)]

    def _window_function(self, node: exp.Table) -> tuple[Node, Relation]:
        """`TUMBLE(TABLE s, DESCRIPTOR(ts), size)` or `TUMBLE(s, ts, size)`: the table's columns, window_start and window_end."""
        refuse_extras(self.ctx, node, ("this", "alias"))
        call = node.this
        kind = window_kind(call)
        if kind is None:
            raise self.ctx.fail("PSK-1006", f"unknown table function {call.name}", call)
        args = list(call.expressions)
        partition = args.pop(1).expressions if len(args) > 1 and args[1].name == PARTITION else []
        within = " [PARTITION BY k]" if kind == "session" else ""
        shape = f"Write {kind.upper()}(TABLE s{within}, DESCRIPTOR(ts), INTERVAL …)."
        if (
            len(args) < 3
            or not isinstance(args[0], exp.Column)
            or not (isinstance(args[1], exp.Column) or args[1].name.upper() == "DESCRIPTOR")
        ):
            raise self.ctx.fail(
                "PSK-2003",
                f"{kind.upper()} as a table function needs a table, a descriptor and intervals",
                call,
                hint=shape,
            )
        if partition and kind != "session":
            raise self.ctx.fail(
                "PSK-2003",
                f"PARTITION BY applies to SESSION only; the windows of {kind.upper()} are the same for all rows",
                call,
            )
        child, relation = self._table(exp.Table(this=args[0].this))
        named = [args[1]] if isinstance(args[1], exp.Column) else args[1].expressions
        if len(named) != 1:
            raise self.ctx.fail("PSK-2003", "DESCRIPTOR must name one time column", call, hint=shape)
        binder = ExprBinder(self.ctx, Scope([relation]))
        time = binder.bind(named[0])
        spec = window_spec(self.ctx, kind, time, args[2:], call)
        prefix = self.ctx.fresh("window")
        start, end = f"{prefix}$start", f"{prefix}$end"
        known = type_of(self.ctx, time)
        if known is not None:
            self.ctx.types[start] = self.ctx.types[end] = known
        made: Node
        cols = list(relation.cols)
        if spec.kind == "session":
            session = SessionWindow(to_expr(self.ctx, time), spec.size, start, end)
            made, cols = sessions(self.ctx, child, cols, [binder.expr(p) for p in partition], session, call)
        else:
            made = WindowAssign(
                child, spec.kind, to_expr(self.ctx, time), spec.size, spec.step, spec.offset, start, end
            )
        return made, self._aliased([*cols, Col("window_start", start), Col("window_end", end)], node, relation.alias)

    # -- generators ----------------------------------------------------------------------------------------------------

    def lateral_view(self, node: Node, lateral: exp.Lateral) -> Node:
        refuse_view(self.ctx, lateral)
        return self._generated(node, lateral, outer=bool(lateral.args.get("outer")))

    def _generated(self, child: Node, item: exp.Expression, *, outer: bool) -> Node:
        """UNNEST(…) AS t(c), LATERAL explode(…) AS t(c), LATERAL VIEW explode(…) t AS c."""
        call = item.this if isinstance(item, exp.Lateral) else item
        if isinstance(item, exp.Lateral) and item.args.get("ordinality"):
            raise self.ctx.fail(
                "PSK-1012", "WITH ORDINALITY is only supported after UNNEST", item, hint="Use posexplode(…)."
            )
        if isinstance(item, exp.Unnest) and len(item.expressions) != 1:
            raise self.ctx.fail("PSK-1012", "UNNEST needs exactly one array", item)
        alias = item.args.get("alias")
        names = [c.name for c in alias.columns] if isinstance(alias, exp.TableAlias) else []
        table = alias.name if isinstance(alias, exp.TableAlias) else ""
        binder = ExprBinder(self.ctx, self.scope)
        if isinstance(item, exp.Unnest) and item.args.get("offset"):
            number = item.args["offset"].name or "ordinality"
            both = [number, names[0] if names else "col"]
            array = exp.Posexplode(this=item.expressions[0])
            node, (count, value) = generate(self.ctx, child, array, binder, both, outer, table)
            # posexplode counts from 0.
            internal = self.ctx.fresh(f"{count.internal}$1")
            one = exp.Add(this=column(count.internal), expression=exp.Literal.number(1))
            kept = [Named(c, col(c)) for c in node.columns if c != count.internal]
            node = Project(node, (*kept, Named(internal, to_expr(self.ctx, one, item))))
            self.add(Relation(table or None, (value, Col(number, internal))), item)
            return node
        node, cols = generate(self.ctx, child, call, binder, names or None, outer, table)
        self.add(Relation(table or None, tuple(cols)), item)
        return node

    # -- joins ---------------------------------------------------------------------------------------------------------

    def join(self, left: Node, join: exp.Join) -> Node:
        item = join.this
        side, kind_word = (join.side or "").upper(), (join.kind or "").upper()
        refuse_join(self.ctx, join)
        if isinstance(item, exp.Unnest) or (isinstance(item, exp.Lateral) and not isinstance(item.this, exp.Subquery)):
            if join.args.get("on") is not None and not _is_true(join.args["on"]):
                raise self.ctx.fail("PSK-1012", "a join with UNNEST cannot have a condition; put it into WHERE", item)
            return self._generated(left, item, outer=side == "LEFT")
        if isinstance(item, exp.Lateral):
            beside = Scope(list(self.scope.relations), self.scope.outer)
            return self._lateral(left, join, item.this.this, beside)
        if self._depends(item):
            if (
                join.args.get("using")
                or join.args.get("method")
                or side not in ("", "LEFT")
                or kind_word in ("SEMI", "ANTI")
            ):
                raise CannotDecorrelate
            return self._lateral(left, join, item.this, Scope(outer=self.scope.outer))
        right, relation = self.item(item)
        before = Scope(list(self.scope.relations), self.scope.outer)
        self.add(relation, item)
        parts = conjuncts(join.args.get("on"))
        special = next(
            (p for p in parts if isinstance(p, exp.Anonymous) and p.name in ("__asof", "__temporal", "__probe")), None
        )
        if special is None and any(
            isinstance(n, exp.Anonymous) and n.name in ("__asof", "__temporal", "__probe")
            for p in parts
            for n in p.walk()
        ):
            raise self.ctx.fail(
                "PSK-3003",
                "the condition of this join must be a conjunction of equalities",
                item,
                hint="Write ON a.k = b.k AND …, without OR.",
            )
        using = [i.name for i in join.args.get("using") or []]
        if (join.args.get("method") or "").upper() == "NATURAL":
            using = [c.name for c in before.visible() if relation.find(c.name)]
        crossed = special is None and not parts and not using
        kind: JoinKind | None = "inner" if kind_word == "CROSS" else JOIN_KINDS.get((side, kind_word))
        if kind is None:
            raise self.ctx.fail("PSK-3003", f"{side} {kind_word} JOIN is not supported".replace("  ", " "), item)
        if kind in ("right", "full") and self.start is not None:
            raise self.ctx.fail(
                "PSK-1012", f"a {kind.upper()} JOIN with columns of the outer query in FROM is not supported", item
            )
        rest = [p for p in parts if p is not special]
        for p in list(rest):
            if isinstance(p, exp.Anonymous) and p.name == "__using":
                using += [c.name for c in p.expressions]
                rest.remove(p)
        if kind == "inner" and special is None and not self._covered:
            # A condition of an inner join can also be applied after it, in WHERE, where subqueries become joins.
            self.where += [p for p in rest if p.find(exp.Query) is not None]
            rest = [p for p in rest if p.find(exp.Query) is None]
        equalities, hide = equalities_of(self.ctx, using, before, relation, item)
        if special is not None and special.name == "__probe":
            made, added = self._times.probe(left, right, before, relation, special, item)
            self.add(added, item)
            return made
        sides = OnSubqueries(self.ctx, left, right, self.scope, self.bind_query, self.ctes)
        binder = ExprBinder(self.ctx, self.scope, subquery=sides.attach if special is None else sides.refuse)
        bound = [*equalities, *(binder.bind(p) for p in rest)]
        left, right = sides.left, sides.right
        if crossed and kind == "inner":
            bound = self._from_where(left, right)
        made = self._joined(left, right, kind, bound, special, binder, item, crossed)
        made = merged(self.ctx, self.scope, made, hide, kind)
        if kind in ("semi", "anti"):
            self.scope.relations.pop()
        return made

    def _joined(
        self,
        left: Node,
        right: Node,
        kind: JoinKind,
        bound: list[exp.Expression],
        special: exp.Expression | None,
        binder: ExprBinder,
        item: exp.Expression,
        crossed: bool,
    ) -> Node:
        if special is not None and special.name == "__asof":
            return self._times.asof(left, right, bound, special, binder, item)
        if special is not None:
            if kind not in ("inner", "left"):
                raise self.ctx.fail("PSK-3003", "a temporal join must be INNER or LEFT", item)
            if _is_proctime(special.expressions[0]):
                return current_lookup(self.ctx, left, right, "inner" if kind == "inner" else "left", bound, item)
            return self._times.temporal(
                left, right, "inner" if kind == "inner" else "left", bound, special, binder, item
            )
        if is_lookup(self.ctx, right):
            if kind not in ("inner", "left"):
                raise self.ctx.fail(
                    "PSK-3003",
                    f"a lookup table cannot be the right side of a {kind.upper()} join",
                    item,
                    hint="Use JOIN or LEFT JOIN.",
                )
            return lookup(self.ctx, left, right, "inner" if kind == "inner" else "left", bound, item)
        if is_lookup(self.ctx, left):
            if kind != "inner":
                raise self.ctx.fail(
                    "PSK-3003", "a lookup table must be the right side of its join", item, hint="Put the stream first."
                )
            return lookup(self.ctx, right, left, "inner", bound, item)
        if (
            crossed
            and self.ctx.streaming(left)
            and self.ctx.streaming(right)
            and not any(isinstance(b, (exp.EQ, exp.NullSafeEQ)) for b in bound)
        ):
            raise self.ctx.fail(
                "PSK-3003",
                "streams cannot be cross joined",
                item,
                hint="Join them ON an equality and a time bound, or make one of them a table.",
            )
        return regular_join(self.ctx, left, right, kind, bound, item)

    def _is_comma(self, join: exp.Join) -> bool:
        """A table or derived table after a comma (or CROSS JOIN), which does not depend on the items before it."""
        said = any(join.args.get(a) for a in ("on", "using", "side", "method")) or (join.kind or "CROSS") != "CROSS"
        return (
            not said and isinstance(join.this, (exp.Table, exp.Subquery, exp.Values)) and not self._depends(join.this)
        )

    def _listed(self, node: Node, joins: list[exp.Join]) -> Node:
        """`a, b, c`: joins each relation as soon as WHERE has an equality between it and the plan so far, in any textual order."""
        waiting = []
        for join in joins:
            right, relation = self.item(join.this)
            self.add(relation, join.this)
            waiting.append((right, join.this))
        while waiting:
            linked = (i for i, (right, _) in enumerate(waiting) if self._linked(node, right))
            right, item = waiting.pop(next(linked, 0))
            bound = self._from_where(node, right)
            node = self._joined(node, right, "inner", bound, None, ExprBinder(self.ctx, self.scope), item, True)
        return node

    def _linked(self, left: Node, right: Node) -> bool:
        sides = frozenset(left.columns), frozenset(right.columns)
        if self._covered:
            return False
        for part in self.where:
            if not isinstance(part, exp.EQ) or part.find(exp.Query) is not None:
                continue
            if not all(self._known(c) for c in part.find_all(exp.Column)):
                continue
            node = ExprBinder(self.ctx, self.scope).bind(part)
            a, b = Expr(bare(node.this)).refs, Expr(bare(node.expression)).refs
            if a and b and ((a <= sides[0] and b <= sides[1]) or (a <= sides[1] and b <= sides[0])):
                return True
        return False

    def _from_where(self, left: Node, right: Node) -> list[exp.Expression]:
        """For `FROM a, b WHERE …`: WHERE conditions over both sides become join conditions."""
        lefts, rights = frozenset(left.columns), frozenset(right.columns)
        out: list[exp.Expression] = []
        if self._covered:
            return out
        for part in list(self.where):
            if part.find(exp.Query) is not None or not isinstance(
                part, (exp.EQ, exp.NullSafeEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between)
            ):
                continue
            if not all(self._known(c) for c in part.find_all(exp.Column)):
                continue
            node = ExprBinder(self.ctx, self.scope).bind(part)
            refs = Expr(node).refs
            if refs & lefts and refs & rights and refs <= lefts | rights:
                out.append(node)
                self.where.remove(part)
        return out

    def _known(self, node: exp.Column) -> bool:
        parts = [p.name for p in node.parts]
        if len(parts) > 1 and self.scope.relation(parts[0]) is not None:
            return True
        return bool(self.scope.find(parts[0]))

    def _lateral(self, left: Node, join: exp.Join, query: exp.Expression, outer: Scope) -> Node:
        """Joins a derived table that uses columns of `left`, whose names are in `outer`."""
        item, side = join.this, (join.side or "").upper()
        on = join.args.get("on")
        # It imports the types of this module.
        from penstock.sql.bind.decorrelation import Decorrelation

        def total(block: Block, parts: list[exp.Expression]) -> bool:
            """An aggregate without GROUP BY has a row for every left row."""
            return block.total and bool(parts)

        found = Decorrelation(self.ctx, self.bind_query, self.ctes).of(
            query,
            left,
            outer,
            item,
            accepts=lambda block, parts: not total(block, parts) or on is None or _is_true(on),
        )
        block, parts = found.block, list(found.parts)
        always = not found.over_domain and total(block, parts)
        self.add(self._aliased(block.cols, item, None), item)
        if on is not None and not _is_true(on):
            parts += [ExprBinder(self.ctx, self.scope).bind(p) for p in conjuncts(on)]
        kind: JoinKind = "left" if side == "LEFT" or always else "inner"
        made: Node = regular_join(self.ctx, left, block.node, kind, parts, item)
        if block.deferred:
            values = (Named(c, to_expr(self.ctx, e, item)) for c, e in block.deferred.items())
            made = Project(made, (*(Named(c, col(c)) for c in left.columns), *values))
        return made


def _is_proctime(node: exp.Expression) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.upper() == "PROCTIME"


def _is_true(node: exp.Expression) -> bool:
    node = bare(node)
    return isinstance(node, exp.Boolean) and bool(node.this)
