"""Prints a finished result to the screen or a pipe.

JSON, JSON lines and CSV write only rows.
"""

from __future__ import annotations

import csv
from typing import IO, TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.cells import to_cell, to_csv, to_json
from penstock.cli.options import Format

if TYPE_CHECKING:
    import pyarrow as pa


def print_result(
    table: pa.Table, output: Format, console: Console, *, elapsed: float | None = None, limit: int | None = None
) -> None:
    """Print a result in one of the formats, at most `limit` rows. `elapsed` is only shown below a table."""
    if limit is not None:
        table = table.slice(0, limit)
    if output is Format.TABLE:
        print_table(table, console, elapsed=elapsed)
        return
    writer = {Format.JSON: write_json, Format.JSONL: write_jsonl, Format.CSV: write_csv}[output]
    writer(table, console.file)


def print_table(table: pa.Table, console: Console, *, elapsed: float | None = None) -> None:
    """A grid with right-aligned numbers and dimmed NULLs, then the number of rows and the time."""
    console.print(grid(table.column_names, [is_numeric(f.type) for f in table.schema], rows(table)))
    console.print(footer(table.num_rows, elapsed))


def print_expanded(table: pa.Table, console: Console, *, elapsed: float | None = None) -> None:
    """Each row as lines of `column | value`, for rows wider than the screen."""
    width = max((len(n) for n in table.column_names), default=0)
    for i, row in enumerate(rows(table), 1):
        console.print(Text(f"─[ row {i} ]" + "─" * max(0, width + 12 - len(str(i))), style="dim"))
        for name, value in zip(table.column_names, row, strict=True):
            line = Text(name.ljust(width), style="cyan")
            console.print(line.append(" │ ", style="dim").append_text(cell(value)), soft_wrap=True)
    console.print(footer(table.num_rows, elapsed))


def grid(names: list[str], numeric: list[bool], values: list[tuple[Any, ...]]) -> Table:
    """The rich table of a result."""
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold cyan")
    for name, right in zip(names, numeric, strict=True):
        drawn.add_column(Text(name), justify="right" if right else "left", overflow="fold")
    for row in values:
        drawn.add_row(*(cell(v) for v in row))
    return drawn


def cell(value: Any) -> Text:
    """A value as a table cell. It is never parsed as markup: `[red]` in the data is printed as is."""
    return Text(to_cell(value), style="dim italic" if value is None else "")


def footer(count: int, elapsed: float | None) -> Text:
    """`3 rows · 12 ms`."""
    text = f"{count:,} row" + ("" if count == 1 else "s")
    return Text(text if elapsed is None else f"{text} · {duration(elapsed)}", style="dim")


def duration(seconds: float) -> str:
    """`12 ms`, `1.34 s` or `2 min 5 s`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.2f} s"
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60} s"


def is_numeric(type_: pa.DataType) -> bool:
    """Types whose values are right-aligned."""
    import pyarrow.types as t

    return bool(t.is_integer(type_) or t.is_floating(type_) or t.is_decimal(type_))


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows as tuples. Unlike dicts, they support duplicate column names."""
    if not table.num_columns:
        return [()] * table.num_rows
    return list(zip(*(c.to_pylist() for c in table.columns), strict=True))


def write_json(table: pa.Table, file: IO[str]) -> None:
    """One array, a row per line."""
    lines = [to_json(dict(zip(table.column_names, row, strict=True))) for row in rows(table)]
    file.write("[" + ",\n ".join(lines) + "]\n")


def write_jsonl(table: pa.Table, file: IO[str]) -> None:
    """One object per line."""
    for row in rows(table):
        file.write(to_json(dict(zip(table.column_names, row, strict=True))) + "\n")


def write_csv(table: pa.Table, file: IO[str]) -> None:
    """A header and a line per row; NULL is empty."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table.column_names)
    writer.writerows([to_csv(v) for v in row] for row in rows(table))
