"""Arrow columns as Python values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """The values of a column. A MAP is a dict, or a list of pairs if its keys cannot be those of a dict."""
    try:
        return column.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]
    except (TypeError, KeyError):
        return column.to_pylist()  # type: ignore[no-any-return]
