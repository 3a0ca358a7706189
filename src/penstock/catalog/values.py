"""Converts Arrow columns to Python values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.catalog.declared import declared
from penstock.catalog.variant import reader


def values(column: pa.ChunkedArray | pa.Array, field: pa.Field) -> list[Any]:
    """The values of a column. A MAP is a dict, or a list of pairs if its keys cannot be dict keys; a VARIANT is its decoded value."""
    try:
        found = column.to_pylist(maps_as_pydicts="strict")
    except (TypeError, KeyError):
        found = column.to_pylist()
    kind = declared(field)
    read = reader(kind) if kind is not None else None
    return found if read is None else [read(v) for v in found]


def frame(table: pa.Table) -> Any:
    """A pandas frame, with variants decoded."""
    made = table.to_pandas()
    for i, field in enumerate(table.schema):
        kind = declared(field)
        if kind is not None and reader(kind) is not None:
            made.isetitem(i, _objects(values(table.column(i), field)))
    return made


def _objects(found: list[Any]) -> Any:
    import pandas as pd

    return pd.Series(found, dtype=object)
