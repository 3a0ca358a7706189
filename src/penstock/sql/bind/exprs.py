"""Scalar expressions: names become internal columns, calls become Spark's, intervals over BIGINT time become milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from sqlglot import exp
from sqlglot.errors import ErrorLevel, UnsupportedError

from penstock.catalog.declared import without_lengths
from penstock.plan.dialect import DIALECT
from penstock.plan.nodes import Expr
from penstock.sql import intervals
from penstock.sql.bind.chars import padded
from penstock.sql.bind.context import Context
from penstock.sql.bind.fields import field_names, with_fields
from penstock.sql.bind.quantified import is_quantified
from penstock.sql.bind.scope import Col, Scope
from penstock.sql.bind.structs import bounds, plain, window_struct
from penstock.sql.functions import STRUCT_WINDOWS, called_aggregate, translate
from penstock.sql.names import suggestion
from penstock.sql.trees import bare, with_parts

_MICROSECOND = exp.Interval(this=exp.Literal.string("0.000001"), unit=exp.Var(this="SECOND"))
_WHOLE = ("bigint", "int", "smallint", "tinyint")
Subquery = Callable[[exp.Expression], exp.Expression]


def column(internal: str) -> exp.Column:
    return exp.Column(this=exp.Identifier(this=internal, quoted=True))


def conjuncts(node: exp.Expression | None) -> list[exp.Expression]:
    """The conjuncts of an AND, without outer parentheses. Conditions common to all branches of an OR are conjuncts of their own."""
    if node is None:
        return []
    # The parentheses of a scalar subquery belong to it.
    inner = node if isinstance(node, exp.Subquery) else bare(node)
    if isinstance(inner, exp.Query) and isinstance(inner.parent, exp.Subquery):
        inner = inner.parent
    if isinstance(inner, exp.And):
        return conjuncts(inner.this) + conjuncts(inner.expression)
    if isinstance(inner, exp.Or):
        return _factored(inner)
    return [inner]


def _factored(node: exp.Or) -> list[exp.Expression]:
    """`a AND b OR a AND c` as `a`, `b OR c`: an equality in every branch can then be a join key."""
    branches = [{p.sql(): p for p in conjuncts(b)} for b in _alternatives(node)]
    common = [text for text in branches[0] if all(text in b for b in branches[1:])]
    if not common:
        return [node]
    out = [branches[0][text] for text in common]
    rests = [[p for text, p in b.items() if text not in common] for b in branches]
    if all(rests):
        either = all_of(rests[0])
        for rest in rests[1:]:
            either = exp.Or(this=either, expression=all_of(rest))
        out.append(either)
    return out


def _alternatives(node: exp.Expression) -> list[exp.Expression]:
    inner = bare(node)
    return _alternatives(inner.this) + _alternatives(inner.expression) if isinstance(inner, exp.Or) else [inner]


def all_of(parts: list[exp.Expression]) -> exp.Expression:
    out = parts[0]
    for p in parts[1:]:
        out = exp.And(this=_wrap(out), expression=_wrap(p))
    return out


def _wrap(node: exp.Expression) -> exp.Expression:
    return exp.Paren(this=node) if isinstance(node, exp.Or) else node


def walk_block(node: exp.Expression) -> Iterator[exp.Expression]:
    """The nodes of an expression, except those of nested queries."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        if not isinstance(current, exp.Query):
            stack.extend(current.iter_expressions(reverse=True))


class ExprBinder:
    """Binds over `scope`. `aliases` are select items that a name can refer to if no column has it; `subquery` handles nested queries."""

    def __init__(
        self,
        ctx: Context,
        scope: Scope,
        aliases: Mapping[str, exp.Expression] | None = None,
        subquery: Subquery | None = None,
    ) -> None:
        self.ctx = ctx
        self.scope = scope
        self.aliases = dict(aliases or {})
        self.subquery = subquery
        self.later: frozenset[str] = frozenset()
        """Select list aliases that cannot be used here, for the hint."""

    def bind(self, node: exp.Expression) -> exp.Expression:
        """Returns a copy with internal names. Aggregate, analytic and window calls are left in place."""
        return self._bind(node.copy())

    def expr(self, node: exp.Expression) -> Expr:
        return to_expr(self.ctx, self.bind(node), node)

    def _bind(self, node: exp.Expression) -> exp.Expression:
        self.ctx.count_node()
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            return self._column(node)
        quantified = is_quantified(node)
        if quantified or (isinstance(node, (exp.Subquery, exp.Exists)) and isinstance(node.this, exp.Query)):
            if self.subquery is None:
                raise self.ctx.fail("PSK-1012", "a subquery is not allowed here", node)
            if quantified:
                node.set("this", self._bind(node.this))
            return self.subquery(node)
        if isinstance(node, exp.Placeholder):
            raise self.ctx.fail("PSK-1018", "a parameter has no value", node)
        names = field_names(node)
        with_parts(node, self._bind)
        node = with_fields(self.ctx, self.scope, node, names)
        if isinstance(node, exp.Anonymous) and node.name.lower() == "window_time":
            return self._window_time(node)
        return padded(self.ctx, self._times(translate(plain(node))))

    def _window_time(self, node: exp.Anonymous) -> exp.Expression:
        """The last moment in a window."""
        pair = bounds(node.expressions[0]) if len(node.expressions) == 1 else None
        if pair is None:
            raise self.ctx.fail(
                "PSK-2003",
                "window_time() needs the window of a window() or session_window() in this query",
                node,
                hint="Write w.end - INTERVAL '0.000001' SECOND for a stored window w.",
            )
        return exp.Paren(this=exp.Sub(this=column(pair[1]), expression=_MICROSECOND.copy()))

    def _column(self, node: exp.Column) -> exp.Expression:
        parts = list(node.parts)
        names = [p.name for p in parts]
        scope: Scope | None = self.scope
        while scope is not None:
            hit = self._resolve(scope, names, node)
            if hit is not None:
                col, rest = hit
                if scope is not self.scope:
                    scope.used.add(col.internal)
                out: exp.Expression = column(col.internal)
                if col.bounds is not None:
                    out = window_struct(*col.bounds, nullable=True)
                    scope.used.update(col.bounds if scope is not self.scope else ())
                return _fields(out, names[rest:])
            window = scope.relation(names[0]) if len(names) == 1 else None
            if window is not None and window.window:
                start, end = (c.internal for c in window.cols)
                scope.used.update((start, end) if scope is not self.scope else ())
                return window_struct(start, end)
            if scope is self.scope and names[0].lower() in self.aliases:
                alias = self.aliases.pop(names[0].lower())
                try:
                    made = self.bind(alias)
                finally:
                    self.aliases[names[0].lower()] = alias
                made = exp.Paren(this=made) if isinstance(made, (exp.Binary, exp.Connector)) else made
                return _fields(made, names[1:])
            scope = scope.outer
        raise self._unknown(node, names)

    def _resolve(self, scope: Scope, names: list[str], node: exp.Column) -> tuple[Col, int] | None:
        if len(names) > 1:
            relation = scope.relation(names[0])
            if relation is not None:
                hits = relation.find(names[1])
                if len(hits) > 1:
                    raise self.ctx.fail(
                        "PSK-1005", f"{names[0]}.{names[1]} is ambiguous: {names[0]} has two columns of that name", node
                    )
                if hits:
                    return hits[0], 2
                hint = suggestion(names[1], [c.name for c in relation.cols])
                raise self.ctx.fail("PSK-1004", f"{names[0]} has no column {names[1]}", node.parts[1], hint=hint)
        hits = scope.find(names[0])
        if len(hits) > 1:
            owners = [r.alias for r in scope.relations if r.alias and r.find(names[0])]
            hint = f"Write {' or '.join(f'{o}.{names[0]}' for o in owners)}." if owners else None
            raise self.ctx.fail("PSK-1005", f"column {names[0]} is ambiguous", node, hint=hint)
        return (hits[0], 1) if hits else None

    def _unknown(self, node: exp.Column, names: list[str]) -> Exception:
        if len(names) > 1 and names[0].lower() not in STRUCT_WINDOWS:
            tables = [r.alias for r in self.scope.relations if r.alias]
            return self.ctx.fail(
                "PSK-1004", f"unknown table or column {names[0]}", node.parts[0], hint=suggestion(names[0], tables)
            )
        known = [*self.scope.names(), *self.aliases]
        hint = suggestion(names[0], known) if known else None
        if names[0].lower() in self.later:
            hint = alias_hint(names[0])
        elif names[0].lower() in ("window_start", "window_end"):
            window = next((r.alias for r in self.scope.relations if r.window), None)
            hint = "Group by TUMBLE, HOP, SESSION or CUMULATE to get window bounds."
            hint = hint if window is None else f"Write {window}.start and {window}.end."
        elif names[0].lower() in STRUCT_WINDOWS:
            hint = f"Group by {names[0].lower()}(ts, '1 minute') to get this column."
        return self.ctx.fail("PSK-1004", f"unknown column {names[0]}", node, hint=hint)

    def _times(self, node: exp.Expression) -> exp.Expression:
        """BIGINT time is Unix milliseconds: an interval that is added to it, or compared with a difference, becomes a number."""
        if isinstance(node, (exp.Add, exp.Sub, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.EQ)):
            for own, other in (("expression", "this"), ("this", "expression")):
                side = node.args[own]
                if not isinstance(bare(side), exp.Interval) or self.type_of(node.args[other]) not in _WHOLE:
                    continue
                if own == "this" and isinstance(node, exp.Sub):
                    continue
                value = intervals.from_node(side)
                ms = intervals.millis(value) if value else None
                if ms is None:
                    raise self.ctx.fail("PSK-2008", "an interval over BIGINT time must be whole milliseconds", node)
                node.set(own, exp.Literal.number(ms) if ms >= 0 else exp.Neg(this=exp.Literal.number(-ms)))
        if isinstance(node, exp.Between) and self.type_of(node.this) in _WHOLE:
            for own in ("low", "high"):
                value = intervals.from_node(node.args[own])
                ms = intervals.millis(value) if value else None
                if ms is not None:
                    node.set(own, exp.Literal.number(ms) if ms >= 0 else exp.Neg(this=exp.Literal.number(-ms)))
        return node

    def type_of(self, node: exp.Expression) -> str | None:
        return type_of(self.ctx, node)


def _fields(node: exp.Expression, names: list[str]) -> exp.Expression:
    for name in names:
        node = plain(exp.Dot(this=node, expression=exp.Identifier(this=name, quoted=True)))
    return node


def alias_hint(name: str) -> str:
    """The hint for a select list alias in WHERE."""
    return f"{name} is an alias of the SELECT list, which is evaluated after WHERE: repeat its expression, use HAVING if it aggregates, or use a derived table."


def type_of(ctx: Context, node: exp.Expression) -> str | None:
    """The type of a bound expression, if it is obvious; None otherwise."""
    if isinstance(node, exp.Paren):
        return type_of(ctx, node.this)
    if isinstance(node, exp.Column):
        return ctx.types.get(node.name)
    if isinstance(node, exp.Cast):
        return without_lengths(str(node.to.sql(dialect=DIALECT)).lower())
    if isinstance(node, exp.Literal):
        return "string" if node.is_string else "int" if node.is_int else None
    if isinstance(node, (exp.Min, exp.Max)):
        return computed(type_of(ctx, node.this))
    called = called_aggregate(node)
    if called is not None and called.edge and node.expressions:
        return computed(type_of(ctx, node.expressions[0]))
    if isinstance(node, exp.Count):
        return "bigint"
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul)):
        left, right = type_of(ctx, node.this), type_of(ctx, node.expression)
        if left in _WHOLE and right in _WHOLE:
            return "bigint"
        if left == "timestamp" and isinstance(node.expression, exp.Interval):
            return "timestamp"
    return None


def computed(kind: str | None) -> str | None:
    """The length of a string belongs to a column; a computed value has none."""
    return None if kind is None else without_lengths(kind)


def to_expr(ctx: Context, node: exp.Expression, origin: exp.Expression | None = None) -> Expr:
    """The finished expression. Raises PSK-1012 if Spark SQL cannot express it."""
    if node.find(exp.Parameter) is not None:
        raise ctx.fail("PSK-1012", "a subquery or variable is not allowed here", origin)
    if isinstance(node, exp.Column):
        return Expr(node)
    try:
        node.sql(dialect=DIALECT, unsupported_level=ErrorLevel.IMMEDIATE)
    except UnsupportedError as error:
        raise ctx.fail(
            "PSK-1012", f"this expression cannot be written in Spark SQL ({str(error).splitlines()[0]})", origin
        ) from None
    return Expr(node)
