"""The rows that a statement returned."""

from __future__ import annotations

import html
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.catalog.values import frame, values
from penstock.errors import fail

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


class Result:
    """An Arrow table with the usual ways to read it. `fetch…` and iteration consume it once; the other methods return all rows."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._at = 0

    @property
    def columns(self) -> list[str]:
        return list(self._table.column_names)

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    def fetchone(self) -> tuple[Any, ...] | None:
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, n: int = 1) -> list[tuple[Any, ...]]:
        part = self._table.slice(self._at, n)
        self._at += part.num_rows
        return _tuples(part)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self.fetchmany(self._table.num_rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        while (row := self.fetchone()) is not None:
            yield row

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def arrow(self) -> pa.Table:
        return self._table

    def df(self) -> pd.DataFrame:
        made: pd.DataFrame = frame(self._table)
        return made

    def pl(self) -> pl.DataFrame:
        import polars

        return polars.from_arrow(self._table)  # type: ignore[return-value]

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)

    def show(self, limit: int = 40) -> None:
        """Prints the first rows as a text table."""
        sys.stdout.write(self._text(limit) + "\n")

    def _text(self, limit: int) -> str:
        shown = [[_cell(v) for v in row] for row in _tuples(self._table.slice(0, limit))]
        widths = [max(len(n), *(len(r[i]) for r in shown), 1) for i, n in enumerate(self.columns)]
        rule = "+" + "+".join("-" * (w + 2) for w in widths) + "+"
        lines = [rule, _line(self.columns, widths), rule, *(_line(r, widths) for r in shown), rule]
        more = len(self) - len(shown)
        count = f"{len(self)} row{'s' if len(self) != 1 else ''}"
        return "\n".join([*lines, count + (f", {more} not shown" if more else "")])

    def __repr__(self) -> str:
        return self._text(20)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(n)}</th>" for n in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_cell(v))}</td>" for v in row) + "</tr>"
            for row in _tuples(self._table.slice(0, 40))
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{len(self)} rows</p>"


def _tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    if table.num_columns == 0:
        return [()] * table.num_rows
    return list(zip(*(_values(c, f) for c, f in zip(table.columns, table.schema, strict=True)), strict=True))


def _values(column: pa.ChunkedArray, field: pa.Field) -> list[Any]:
    try:
        return values(column, field)
    except (OverflowError, UnicodeDecodeError, ValueError) as why:
        raise fail(
            "PSK-7001",
            f"Column {field.name!r} has a value that Python cannot represent: {why}.",
            hint="Python needs dates and times in the years 1 to 9999, UTF-8 text, and fields with different names. Result.arrow() returns all values.",
        ) from None


def _cell(value: object) -> str:
    return "NULL" if value is None else str(value)


def _line(cells: list[str], widths: list[int]) -> str:
    return "|" + "|".join(f" {c.ljust(w)} " for c, w in zip(cells, widths, strict=True)) + "|"
