"""Calls of functions that return a table: each becomes a derived table in FROM."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from penstock.catalog.declared import without_lengths
from penstock.catalog.objects import Column, ObjectInfo
from penstock.plan.dialect import Penstock
from penstock.sql.bind.context import CatalogView
from penstock.sql.bind.ctes import is_cte, own_object

_TABLE = "table"
"""The option of a function that holds the columns of its table."""
_MOVED = ("alias", "pivots", "joins", "sample")
"""What a table in FROM may have besides its name."""


def with_table(columns: Sequence[Column], found: Sequence[Column]) -> dict[str, str]:
    """The option for declared columns, of which those that have another type than the query are cast."""
    kept = [(c.name, None if c.type == f.type else c.type) for c, f in zip(columns, found, strict=True)]
    return {_TABLE: json.dumps(kept)}


def returns_table(info: ObjectInfo) -> bool:
    return _TABLE in info.options


@dataclass(frozen=True)
class Names:
    """What the names in a query may refer to, in lower case: columns of any of its relations, and these."""

    columns: frozenset[str]
    relations: frozenset[str]


def names(body: exp.Expr, catalog: CatalogView) -> Names:
    columns, relations = set(), set()
    for node in body.find_all(exp.Table, exp.TableAlias, exp.Alias, exp.CTE):
        if isinstance(node, exp.Alias):
            columns.add(node.alias.lower())
        elif isinstance(node, exp.TableAlias):
            relations.add(node.name.lower())
            columns |= {c.name.lower() for c in node.columns}
        elif isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            relations.add(node.name.lower())
            info = catalog.get(node.name)
            columns |= {c.name.lower() for c in info.columns} if info is not None else set()
    return Names(frozenset(columns), frozenset(relations))


def captured(value: exp.Expr, known: Names) -> exp.Column | None:
    """A column of an argument that would mean something else inside of the query of the function."""
    for column in value.find_all(exp.Column):
        parts = [p.name.lower() for p in column.parts]
        if parts[0] in known.relations or (len(parts) == 1 and parts[0] in known.columns):
            return column
    return None


def mark_objects(body: exp.Expr) -> None:
    """The tables of a function are objects, whatever CTEs are around its call."""
    for table in body.find_all(exp.Table):
        if not is_cte(table):
            own_object(table)


def place(call: exp.Anonymous, info: ObjectInfo, body: exp.Expr) -> None:
    """Puts the query of a function where its call is, with the names and types of its table."""
    kept: list[tuple[str, str | None]] = [(n, t) for n, t in json.loads(info.options[_TABLE])]
    at = call.parent
    assert at is not None
    if any(kind is not None for _, kind in kept):
        body = _cast(body, kept)
    while isinstance(body, exp.Subquery) and not any(v for k, v in body.args.items() if k != "this"):
        body = body.this
    given = at.args.get("alias")
    alias = given.copy() if isinstance(given, exp.TableAlias) else exp.TableAlias()
    if alias.args.get("this") is None:
        alias.set("this", exp.Identifier(this=info.name, quoted=True))
    if not alias.columns:
        alias.set("columns", [exp.Identifier(this=n, quoted=True) for n, _ in kept])
    if isinstance(at, exp.Lateral):
        at.set("this", exp.Subquery(this=body))
        at.set("alias", alias)
        return
    moved = {k: at.args[k] for k in _MOVED if at.args.get(k)}
    at.replace(exp.Subquery(this=body, **(moved | {"alias": alias})))


def _cast(body: exp.Expr, kept: Sequence[tuple[str, str | None]]) -> exp.Select:
    columns = [exp.Identifier(this=n, quoted=True) for n, _ in kept]
    items: list[exp.Expr] = []
    for name, (_, kind) in zip(columns, kept, strict=True):
        item: exp.Expr = exp.Column(this=name.copy())
        if kind is not None:
            made = sqlglot.parse_one(f"CAST(NULL AS {without_lengths(kind)})", dialect=Penstock)
            made.set("this", item)
            item = exp.Alias(this=made, alias=name.copy())
        items.append(item)
    alias = exp.TableAlias(this=exp.Identifier(this="__returned", quoted=True), columns=columns)
    return exp.Select(expressions=items).from_(exp.Subquery(this=body, alias=alias))
