"""Types that a format or an external system does not have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from penstock.catalog.declared import contains, declared
from penstock.catalog.objects import Column
from penstock.errors import fail

INTERVALS, VARIANTS = "interval", "variant"


def refuse_written(what: str, fields: Iterable[pa.Field], *kinds: str) -> None:
    """Raises PSK-2012 for a column of a stream that a sink cannot write."""
    for f in fields:
        kind = declared(f)
        if kind is not None and contains(kind, *kinds):
            raise fail("PSK-2012", f"{what} cannot hold column {f.name}, which is {kind}.")


def refuse_read(what: str, columns: Sequence[Column], *kinds: str) -> None:
    """Raises PSK-2010 for a column that a source cannot fill."""
    for c in columns:
        if contains(c.type, *kinds):
            raise fail(
                "PSK-2010",
                f"{what} has no values for column {c.name}, which is {c.type}.",
                hint="Declare it as STRING or a number, and convert it in a view.",
            )
