"""Calls of SQL functions, each replaced by what the function returns: Spark sees expressions of its own functions only."""

from __future__ import annotations

from functools import lru_cache

import sqlglot
from sqlglot import exp

from penstock.catalog.declared import without_lengths
from penstock.catalog.objects import Column, Kind, ObjectInfo
from penstock.errors import PenstockError, fail
from penstock.plan.dialect import Penstock
from penstock.plan.nodes import Expr
from penstock.plan.predicates import deterministic
from penstock.sql.bind.context import CatalogView, Context
from penstock.sql.bind.naming import output_name
from penstock.sql.bind.tablefunctions import captured, mark_objects, names, place, returns_table
from penstock.sql.limits import MAX_NODES
from penstock.sql.script import parse_script
from penstock.sql.statements import CreateFunction
from penstock.sql.tokens import Script

RETURNS = "returns"
"""The option of a function that holds the type of its result."""


@lru_cache(maxsize=256)
def _body(sql: str, programs: bool) -> exp.Expression:
    (statement,) = parse_script(sql, programs=programs)
    assert isinstance(statement, CreateFunction)
    return statement.body


def inlined(ctx: Context, tree: exp.Expression) -> exp.Expression:
    """A query without calls of SQL functions; the tree itself if it has none. Its outputs keep their names."""
    inlining = Inlining(ctx.catalog, ctx.script, programs=ctx.script.reading.programs)
    if not inlining.calls(tree):
        return tree
    tree = tree.copy()
    for select in tree.find_all(exp.Select):
        items = select.expressions
        select.set("expressions", [_named(e) if inlining.calls(e) else e for e in items])
    made = inlining.tree(tree)
    ctx.expanded |= inlining.used
    assert isinstance(made, exp.Expression)
    return made


def _named(item: exp.Expression) -> exp.Expr:
    plain = isinstance(item, (exp.Alias, exp.Aliases, exp.Query))
    return item if plain else exp.alias_(item, output_name(item), quoted=True)


_AROUND = (exp.Window, exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)
_INSIDE = (exp.Distinct, exp.Order, exp.Star)
"""What only calls of aggregates have around or inside."""


class Inlining:
    """Replaces calls in the expressions of one statement. `used` are the functions, by their ids."""

    def __init__(self, catalog: CatalogView, script: Script | None, *, programs: bool) -> None:
        """`script` is what the statement was parsed from; without it errors have no position."""
        self.catalog = catalog
        self.script = script
        self.programs = programs
        self.used: dict[int, ObjectInfo] = {}
        self._nodes = 0

    def tree(self, tree: exp.Expr, parameters: frozenset[str] = frozenset()) -> exp.Expr:
        """The tree itself if it calls no function of the catalogue, otherwise a copy. `parameters` are those of the function whose body it is."""
        if not self.calls(tree):
            return tree
        made = tree.copy()
        # Innermost first: an argument that is a call is replaced before it is copied.
        for node in reversed(list(made.find_all(exp.Anonymous))):
            info = self._function(node)
            if info is None:
                continue
            if returns_table(info):
                self._table(info, node, parameters)
                continue
            result = self._result(info, node)
            if node is made:
                return result
            node.replace(result)
        return made

    def calls(self, tree: exp.Expr) -> bool:
        return any(self._function(n) is not None for n in tree.find_all(exp.Anonymous))

    def _function(self, node: exp.Anonymous) -> ObjectInfo | None:
        info = self.catalog.get(node.name)
        return info if info is not None and info.kind is Kind.FUNCTION else None

    def _table(self, info: ObjectInfo, call: exp.Anonymous, parameters: frozenset[str]) -> None:
        """Replaces a call in FROM. An argument has no columns, unless LATERAL is before it."""
        at = call.parent
        if isinstance(at, exp.Anonymous) and at.name.upper() == "TABLE" and isinstance(at.parent, exp.Table):
            at.replace(call)
            at = call.parent
        if not isinstance(at, (exp.Table, exp.Lateral)):
            raise self._fail("PSK-1007", f"{info.name} returns a table, not a value", call, "Call it in FROM.")
        if at.args.get("ordinality"):
            raise self._fail("PSK-1012", "WITH ORDINALITY is for arrays", call, "Let the function return a number.")
        self.used[info.id] = info
        body = _body(info.sql, self.programs)
        made = self.tree(body, frozenset(c.name.lower() for c in info.columns)).copy()
        known = names(made, self.catalog)
        given = self._arguments(info, call)
        for value in given.values():
            free = [c for c in value.find_all(exp.Column) if c.parts[0].name.lower() not in parameters]
            if free and not isinstance(at, exp.Lateral):
                raise self._fail(
                    "PSK-1012", f"an argument of {info.name} is a column", call, f"Write LATERAL {info.name}(…)."
                )
            taken = captured(value, known)
            if taken is not None:
                raise self._fail(
                    "PSK-1012", f"the query of {info.name} has a {taken.sql()} of its own", call,
                    "Give the relation, or the column, another name in a derived table.",
                )  # fmt: skip
        mark_objects(made)
        _place(made, call)
        made = substituted(made, info.name, given)
        self._count(made, call)
        place(call, info, made)

    def _result(self, info: ObjectInfo, call: exp.Anonymous) -> exp.Expr:
        if isinstance(call.parent, (exp.Table, exp.Lateral)):
            raise self._fail("PSK-1007", f"{info.name} returns a value, not a table", call, "Call it in an expression.")
        if (isinstance(call.parent, _AROUND) and call.parent.this is call) or call.find(
            *_INSIDE, bfs=True
        ) in call.expressions:
            raise self._fail(
                "PSK-1007", f"{info.name} is no aggregate: DISTINCT, *, FILTER, OVER and the like are not for it", call,
                f"Write {info.name}(…) with its arguments only.",
            )  # fmt: skip
        self.used[info.id] = info
        body = self.tree(_body(info.sql, self.programs)).copy()
        given = self._arguments(info, call)
        _place(body, call)
        body = substituted(body, info.name, given)
        self._count(body, call)
        return _cast(body, info.options[RETURNS])

    def _count(self, body: exp.Expr, call: exp.Anonymous) -> None:
        self._nodes += sum(1 for _ in body.walk())
        if self._nodes > MAX_NODES:
            raise self._fail("PSK-1020", f"the expressions have more than {MAX_NODES:,} parts", call)

    def _arguments(self, info: ObjectInfo, call: exp.Anonymous) -> dict[str, exp.Expr]:
        """The values of the parameters, by their names in lower case."""
        given: dict[str, exp.Expr] = {}
        positions = [a for a in call.expressions if not isinstance(a, exp.Kwarg)]
        if len(positions) > len(info.columns):
            raise self._fail("PSK-1007", f"{info.name} has {len(info.columns)} parameters, not {len(positions)}", call)
        for parameter, value in zip(info.columns, positions, strict=False):
            given[parameter.name.lower()] = value
        for argument in call.expressions:
            if isinstance(argument, exp.Kwarg):
                name = argument.this.name.lower()
                if name in given or info.column(name) is None:
                    why = "already a value for" if name in given else "no parameter"
                    raise self._fail("PSK-1007", f"{info.name} has {why} {argument.this.name}", call)
                given[name] = argument.expression
        used = [c.name.lower() for c in _body(info.sql, self.programs).find_all(exp.Column)]
        for parameter in info.columns:
            value = given.get(parameter.name.lower()) or self._default(info, parameter, call)
            assert isinstance(value, exp.Expression)
            if not deterministic(Expr(value)) and used.count(parameter.name.lower()) > 1:
                # Each place would have another value.
                hint = "Compute it as a column of a derived table."
                raise self._fail(
                    "PSK-1012", f"{info.name} uses {parameter.name} twice, and its value changes", call, hint
                )
            given[parameter.name.lower()] = _cast(value, parameter.type)
        return given

    def _default(self, info: ObjectInfo, parameter: Column, call: exp.Expr) -> exp.Expr:
        if parameter.default is None:
            raise self._fail("PSK-1007", f"{info.name} needs a value for {parameter.name}", call)
        return self.tree(sqlglot.parse_one(parameter.default, dialect=Penstock))

    def _fail(self, code: str, detail: str, node: exp.Expr, hint: str | None = None) -> PenstockError:
        if self.script is None:
            return fail(code, detail, hint=hint)
        return fail(code, detail, position=self.script.place(node), sql=self.script.shown, hint=hint)


def substituted(body: exp.Expr, function: str, values: dict[str, exp.Expr]) -> exp.Expr:
    """A body with values in place of its parameters, which may be qualified by the name of the function, and have fields."""
    if isinstance(body, exp.Column):
        return _value(body, function, values) or body
    for node in list(body.find_all(exp.Column)):
        made = _value(node, function, values)
        if made is not None:
            node.replace(made)
    return body


def _value(node: exp.Column, function: str, values: dict[str, exp.Expr]) -> exp.Expr | None:
    parts = list(node.parts)
    if len(parts) > 1 and parts[0].name.lower() == function.lower() and parts[1].name.lower() in values:
        parts = parts[1:]
    name = parts[0].name.lower()
    if name not in values or _bound(node, name):
        return None
    made = values[name].copy()
    for field in parts[1:]:
        made = exp.Dot(this=made, expression=field.copy())
    return made


def _bound(node: exp.Expr, name: str) -> bool:
    """Whether a name is the variable of a lambda around it."""
    at = node.parent
    while at is not None:
        if isinstance(at, exp.Lambda) and any(v.name.lower() == name for v in at.expressions):
            return True
        at = at.parent
    return False


def _cast(value: exp.Expr, kind: str) -> exp.Expr:
    made = sqlglot.parse_one(f"CAST(NULL AS {without_lengths(kind)})", dialect=Penstock)
    made.set("this", value.copy())
    return made


def _place(body: exp.Expr, call: exp.Expr) -> None:
    """Errors in the body point at the call."""
    for node in body.walk():
        for key in ("start", "end"):
            node.meta.pop(key, None)
            if key in call.meta and isinstance(node, (exp.Identifier, exp.Func)):
                node.meta[key] = call.meta[key]
