"""Refuses to compare values that Spark does not compare: VARIANT, mixed intervals of months and days and, except for GROUP BY, maps.

The kernel finds rows by their bytes, so it would accept any type as a key, and it does not know the rules of a collation.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, CalendarIntervalType, DataType, MapType, StringType, StructType, VariantType

from penstock.errors import fail
from penstock.plan import nodes as p

_INCOMPARABLE = (VariantType, CalendarIntervalType)


def check_comparable(n: p.Node, made: DataFrame) -> None:
    """Raises PSK-2011 if a node compares such values. `made` is its frame, which still has all columns that it compares."""
    what, names, exprs = n.compared
    if not names and not exprs:
        return
    kinds = {f.name: f.dataType for f in made.schema.fields}
    plain = [e.column for e in exprs if e.column is not None]
    computed = [e for e in exprs if e.column is None and kinds.keys() >= set(e.refs)]
    check_types(what, [kinds[c] for c in (*names, *plain) if c in kinds])
    if computed:
        check_types(what, [f.dataType for f in made.selectExpr(*(e.sql() for e in computed)).schema.fields])


def check_types(what: str, kinds: Iterable[DataType]) -> None:
    kinds = list(kinds)
    check_collated(what, kinds)
    for kind in kinds:
        if _incomparable(kind) or (what != "GROUP BY" and _has_map(kind)):
            raise fail("PSK-2011", f"{what} cannot compare values of type {kind.simpleString().upper()}.")


def check_collated(what: str, kinds: Iterable[DataType]) -> None:
    """Raises PSK-2011 for strings that are not compared by their bytes."""
    for kind in kinds:
        if _is_collated(kind):
            raise fail(
                "PSK-2011",
                f"{what} cannot compare values of type {kind.simpleString().upper()} in a continuous query.",
                hint="Compare lower(c), or create the view without COLLATE and write it in the SELECT from the view.",
            )


def _is_collated(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _is_collated(kind.elementType)
    if isinstance(kind, MapType):
        return _is_collated(kind.keyType) or _is_collated(kind.valueType)
    if isinstance(kind, StructType):
        return any(_is_collated(f.dataType) for f in kind.fields)
    return isinstance(kind, StringType) and kind.collation != "UTF8_BINARY"


def _incomparable(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _incomparable(kind.elementType)
    if isinstance(kind, MapType):
        return _incomparable(kind.keyType) or _incomparable(kind.valueType)
    if isinstance(kind, StructType):
        return any(_incomparable(f.dataType) for f in kind.fields)
    return isinstance(kind, _INCOMPARABLE)


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_map(kind.elementType)
    if isinstance(kind, StructType):
        return any(_has_map(f.dataType) for f in kind.fields)
    return isinstance(kind, MapType)
