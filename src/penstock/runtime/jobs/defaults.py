"""The values of DEFAULT expressions."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import NamedTuple

from sqlglot import exp

from penstock.catalog.objects import Column
from penstock.errors import fail
from penstock.plan.nodes import Expr
from penstock.plan.predicates import deterministic
from penstock.runtime.storage.feed import PerInsert
from penstock.spark.batch import BatchReader
from penstock.sql.bind.context import CatalogView
from penstock.sql.bind.inlining import Inlining
from penstock.sql.functions import NOW, name_of
from penstock.sql.script import parse_constant


class _Changing(NamedTuple):
    """A function that a default may be, with a value of its own for each insert or row, and the types of columns that it fits."""

    value: Callable[[], object] | PerInsert
    types: tuple[str, ...]


_NOW = _Changing(PerInsert(lambda now: now), ("timestamp", "timestamp_ntz"))
_TODAY = _Changing(PerInsert(lambda now: now.date()), ("date",))
_CHANGING = {
    "current_timestamp": _NOW,
    "now": _NOW,
    "localtimestamp": _NOW,
    "current_date": _TODAY,
    "curdate": _TODAY,
    "uuid": _Changing(lambda: str(uuid.uuid4()), ("string",)),
}


def default_values(
    batch: BatchReader, catalog: CatalogView, columns: Iterable[Column], *, programs: bool
) -> dict[str, object]:
    """What fills each column with a DEFAULT: a value, or what `computed` and `coerce` get one from.

    A stored default is checked like a new one: the file may have been edited by hand.
    """
    inlining = Inlining(catalog, None, programs=programs)
    made: dict[str, object] = {}
    constants: list[tuple[Column, exp.Expr]] = []
    for c in columns:
        if c.default is not None:
            tree = inlining.tree(parse_constant(c.default, programs=programs))
            changing = _changing(c, tree)
            if changing is None:
                constants.append((c, tree))
            else:
                made[c.name] = changing
    return made | batch.constants(constants)


def _changing(column: Column, tree: exp.Expr) -> Callable[[], object] | PerInsert | None:
    """What computes a default that is not constant; None if it is."""
    found = _CHANGING.get(name_of(tree) or "") if not tree.expressions else None
    if found is not None and column.type in found.types:
        return found.value
    assert isinstance(tree, exp.Expression)
    if deterministic(Expr(tree)) and not any(_reads_clock(n) for n in tree.walk()):
        return None
    raise fail(
        "PSK-1012",
        f"The default of column {column.name} changes from row to row.",
        hint="Of such values a default can be current_timestamp() of a TIMESTAMP, current_date() of a DATE, and uuid() of a STRING.",
    )


def _reads_clock(node: exp.Expr) -> bool:
    name = name_of(node)
    return name in NOW or (name in ("unix_timestamp", "to_unix_timestamp") and not node.expressions)
