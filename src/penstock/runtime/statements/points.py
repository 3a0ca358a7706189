"""Statements about single rows, which need no Spark: what they read and write, if that is certain."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp

from penstock.catalog.declared import char_length, without_lengths
from penstock.catalog.objects import Column, ObjectInfo
from penstock.catalog.types import to_arrow
from penstock.runtime.statements.casts import INTEGERS, MAX_DIGITS, Constant, cast, decimal_type, fits
from penstock.runtime.statements.constants import Bound, constant
from penstock.sql.query import ParsedQuery

_PLAIN_CLAUSES = frozenset({"expressions", "from_", "where", "limit"})
_EQUAL_KINDS = frozenset({"string", "boolean", "date", "timestamp"})
_SCALARS = INTEGERS | _EQUAL_KINDS | {"double", "float", "timestamp_ntz", "binary"}
_MOST_EXACT = 18
"""A decimal of so many digits can be compared with every literal without exceeding Spark's 38."""


class NotPoint(Exception):
    """A prepared statement whose parameters must be written into its text for Spark."""


# INSERT


def inserted(
    info: ObjectInfo, names: Sequence[str], values: Sequence[Sequence[exp.Expression]], bound: Bound
) -> list[dict[str, Any]] | None:
    """The rows of VALUES with the types of the columns; None if Spark has to compute them."""
    columns = [info.column(n) for n in names]
    if any(len(row) != len(names) for row in values):
        return None
    made: list[list[Any]] = []
    for i, column in enumerate(columns):
        if column is None:
            return None
        given = [constant(row[i], bound) for row in values]
        cells = [cast(c, without_lengths(column.type)) if c is not None else None for c in given]
        if any(c is None for c in cells):
            return None
        made.append([c.value for c in cells if c is not None])
    own = [c.name for c in columns if c is not None]
    return [dict(zip(own, row, strict=True)) for row in zip(*made, strict=True)]


# Conditions


@dataclass(frozen=True)
class Match:
    """A conjunction of equalities with values, which names every key column once. `never`: one of the values is NULL."""

    key: dict[str, Any]
    others: dict[str, Any]
    never: bool


def matched(info: ObjectInfo, alias: str, where: exp.Expr | None, bound: Bound) -> Match | None:
    """The condition as a match of one key; None if it is something else, or its values need Spark's conversions."""
    if where is None or not info.key:
        return None
    found: dict[str, Any] = {}
    never = False
    todo: list[exp.Expr] = [where]
    while todo:
        node = todo.pop()
        if isinstance(node, exp.Paren):
            todo.append(node.this)
            continue
        if isinstance(node, exp.And):
            todo += [node.this, node.expression]
            continue
        if not isinstance(node, exp.EQ):
            return None
        sides = (node.this, node.expression)
        column = next((c for s in sides if (c := _column(info, alias, s)) is not None), None)
        other = sides[1] if _column(info, alias, sides[0]) is not None else sides[0]
        given = constant(other, bound)
        if column is None or given is None or column.name in found:
            return None
        # Only Spark knows that trailing blanks of a CHAR do not count.
        kind = column.type if char_length(column.type) else without_lengths(column.type)
        value = _comparable(kind, given)
        if value is None:
            return None
        never = never or value.value is None
        found[column.name] = value.value
    if not all(k in found for k in info.key):
        return None
    key = {k: found.pop(k) for k in info.key}
    return Match(key, found, never)


def _column(info: ObjectInfo, alias: str, e: exp.Expr) -> Column | None:
    if not isinstance(e, exp.Column) or not isinstance(e.this, exp.Identifier) or len(e.parts) > 2:
        return None
    if len(e.parts) == 2 and (e.table.lower() != alias.lower() or info.column(alias) is not None):
        return None
    return info.column(e.name)


def _comparable(kind: str, given: Constant) -> Constant | None:
    """The value of the column that equals the constant, if Spark compares the two without converting the column."""
    if given.type == "void":
        return Constant(kind, None) if kind in _SCALARS or decimal_type(kind) else None
    if given.value is None:
        return None
    if kind in INTEGERS:
        return cast(given, kind) if given.type in INTEGERS else None
    if kind in _EQUAL_KINDS:
        return given if given.type == kind else None
    sized = decimal_type(kind)
    if sized is None or sized[0] > _MOST_EXACT or given.type not in ("int", "bigint", "decimal"):
        return None
    if given.type == "decimal" and len(given.value.as_tuple().digits) - given.value.as_tuple().exponent > _MOST_EXACT:
        return None
    made = cast(given, kind)
    return made if made is not None and made.value == given.value else None


# SET


def assignment(
    info: ObjectInfo, column: Column, e: exp.Expr, bound: Bound
) -> Callable[[Mapping[str, Any]], Any] | None:
    """SET column = e, as a function of the old row; None if Spark has to compute it.

    The function raises NotPoint where the result is Spark's to decide, such as an overflow.
    """
    given = constant(e, bound)
    if given is not None:
        made = cast(given, without_lengths(column.type))
        if made is None:
            return None
        value = made.value
        return lambda row: value
    own = _column(info, info.name, e)
    if own is not None:
        name = own.name
        return (lambda row: row[name]) if own.type == column.type else None
    if isinstance(e, (exp.Add, exp.Sub, exp.Mul)):
        return _arithmetic(info, column, e, bound)
    return None


def _arithmetic(
    info: ObjectInfo, column: Column, e: exp.Binary, bound: Bound
) -> Callable[[Mapping[str, Any]], Any] | None:
    """`c + 1`, `c - ?`, `c * 1.5`: a column and a constant of its family."""
    own, given = _column(info, info.name, e.this), constant(e.expression, bound)
    if own is None or given is None or given.value is None:
        return None
    name, right = own.name, given.value
    compute = operator.add if isinstance(e, exp.Add) else operator.sub if isinstance(e, exp.Sub) else operator.mul
    if own.type in INTEGERS and given.type in ("int", "bigint"):
        wide = "bigint" if "bigint" in (own.type, given.type) else "int"
    elif own.type == "double" and given.type in ("int", "double") and column.type == "double":
        wide, right = "double", float(right)
    elif (sized := decimal_type(own.type)) is not None and given.type in ("int", "decimal"):
        if not _exact(e, sized, Decimal(right)):
            return None
        wide, right = "decimal", Decimal(right)
    else:
        return None

    def assign(row: Mapping[str, Any]) -> Any:
        if row[name] is None:
            return None
        result = compute(row[name], right)
        if wide in INTEGERS and not fits(result, wide):
            raise NotPoint
        made = cast(Constant(wide, result), column.type)
        if made is None:
            raise NotPoint
        return made.value

    return assign


def _exact(e: exp.Binary, sized: tuple[int, int], value: Decimal) -> bool:
    """Whether Spark's type for the result has room for every digit, and Python's too."""
    precision, scale = sized
    _, digits, exponent = value.as_tuple()
    scale2 = max(0, -int(exponent))
    # An INT has 10 digits if Spark does not look at its value.
    precision2 = max(len(digits), scale2, 10)
    if isinstance(e, exp.Mul):
        needed = precision + precision2 + 1
    else:
        needed = max(precision - scale, precision2 - scale2) + max(scale, scale2) + 1
    # Python's own limit for exact arithmetic is 28 digits.
    return needed <= min(28, MAX_DIGITS)


# SELECT


@dataclass(frozen=True)
class PointSelect:
    """SELECT of some columns of the row with a key. `info` is the object as it was when the statement was bound."""

    info: ObjectInfo
    alias: str
    where: exp.Expr
    columns: tuple[int, ...]
    schema: pa.Schema


def point_select(query: ParsedQuery, info: ObjectInfo) -> PointSelect | None:
    """A bound query over one object as a read of one key; None if it does more."""
    tree = query.ast
    if query.options or not info.key or not info.has_contents or info.on_demand:
        return None
    if not isinstance(tree, exp.Select) or any(v and k not in _PLAIN_CLAUSES for k, v in tree.args.items()):
        return None
    table, where, limit = tree.args["from_"].this, tree.args.get("where"), tree.args.get("limit")
    if limit is not None and not _at_least_one(limit):
        return None
    if not isinstance(table, exp.Table) or any(v and k not in ("this", "alias") for k, v in table.args.items()):
        return None
    if where is None or where.find(exp.Query) is not None or (table.args.get("alias") and table.args["alias"].columns):
        return None
    alias = table.alias or table.name
    chosen: list[tuple[Column, str]] = []
    for item in tree.expressions:
        if isinstance(item, exp.Star) and not any(item.args.values()):
            chosen += [(c, c.name) for c in info.columns]
            continue
        inner = item.this if isinstance(item, exp.Alias) else item
        column = _column(info, alias, inner)
        name = item.alias if isinstance(item, exp.Alias) else item.name
        # A name that is written in another case than the column's is the engine's to choose.
        if column is None or (item is inner and name != column.name):
            return None
        chosen.append((column, name))
    if len({n.lower() for _, n in chosen}) < len(chosen) or any(
        not _is_scalar(without_lengths(c.type)) for c, _ in chosen
    ):
        return None
    at = {c.name: i for i, c in enumerate(info.columns)}
    schema = pa.schema([pa.field(n, to_arrow(c.type)) for c, n in chosen])
    return PointSelect(info, alias, where.this, tuple(at[c.name] for c, _ in chosen), schema)


def _at_least_one(limit: exp.Expr) -> bool:
    """LIMIT 1 and above change nothing: a key has one row."""
    if not isinstance(limit, exp.Limit) or any(v and k != "expression" for k, v in limit.args.items()):
        return False
    count = limit.expression
    return isinstance(count, exp.Literal) and count.is_int and int(count.this) >= 1


def _is_scalar(kind: str) -> bool:
    # As for every SELECT on the view store, a DECIMAL(38, 0) comes out of DuckDB as something else.
    return kind in _SCALARS or (decimal_type(kind) is not None and kind != "decimal(38,0)")
