"""The live tail of a subscription: prints rows as they arrive."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from typing import IO, Any, Protocol

from rich.console import Console
from rich.text import Text

from penstock.cli.cells import to_cell, to_csv, to_json
from penstock.cli.options import Format
from penstock.errors import fail

WEIGHT = "__weight"
Row = Mapping[str, Any]


class Tail(Protocol):
    """Prints the rows of a subscription."""

    def write(self, rows: Sequence[Row]) -> None:
        """Print the rows of one change and flush, so that the reader of a pipe sees them immediately."""

    def progress(self, epoch: int, lsn: int, watermark: int | None) -> None:
        """Report that nothing has changed up to this point. Only called for a subscription `WITH (progress = true)`."""

    def close(self) -> None:
        """Print the end of the output, after the last row."""


def tail_for(output: Format, console: Console) -> Tail:
    """The tail for an output format."""
    if output is Format.JSON:
        return JsonTail(console.file)
    if output is Format.JSONL:
        return JsonlTail(console.file)
    if output is Format.CSV:
        return CsvTail(console.file)
    return TableTail(console)


class TableTail:
    """`+` rows are green, `−` rows red. Columns only get wider; the header is then printed again."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._widths: dict[str, int] = {}
        self._count = 0

    def write(self, rows: Sequence[Row]) -> None:
        if not rows:
            return
        names = [n for n in rows[0] if n != WEIGHT]
        widths = {n: max(self._widths.get(n, len(n)), *(len(to_cell(r[n])) for r in rows)) for n in names}
        if widths != self._widths:
            self._widths = widths
            header = "  " + "  ".join(n.ljust(w) for n, w in widths.items())
            self._console.print(Text(header.rstrip(), style="bold cyan"), soft_wrap=True)
        for row in rows:
            self._console.print(self._line(row), soft_wrap=True)
        self._count += len(rows)

    def progress(self, epoch: int, lsn: int, watermark: int | None) -> None:
        text = f"· epoch {epoch}, LSN {lsn}"
        self._console.print(Text(text if watermark is None else f"{text}, watermark {watermark}", style="dim"))

    def close(self) -> None:
        text = f"{self._count:,} row" + ("" if self._count == 1 else "s")
        self._console.print(Text(text, style="dim"))

    def _line(self, row: Row) -> Text:
        weight = weight_of(row)
        sign = "+" if weight > 0 else "−"
        times = f" ×{abs(weight)}" if abs(weight) != 1 else ""
        values = "  ".join(_aligned(row[n], w) for n, w in self._widths.items())
        return Text(f"{sign} {values}{times}".rstrip(), style="green" if weight > 0 else "red")


class JsonlTail:
    """One object per line; `__weight` is a column like the others."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, rows: Sequence[Row]) -> None:
        self._file.writelines(to_json(dict(row)) + "\n" for row in rows)
        self._file.flush()

    def progress(self, epoch: int, lsn: int, watermark: int | None) -> None:
        self.write([_progress_row(epoch, lsn, watermark)])

    def close(self) -> None:
        pass


class JsonTail:
    """One array, a row per line, closed when the subscription ends."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._separator = "["

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._file.write(self._separator + to_json(dict(row)))
            self._separator = ",\n "
        self._file.flush()

    def progress(self, epoch: int, lsn: int, watermark: int | None) -> None:
        self.write([_progress_row(epoch, lsn, watermark)])

    def close(self) -> None:
        self._file.write("[]\n" if self._separator == "[" else "]\n")


class CsvTail:
    """A header with the first row, then a line per row."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._writer = csv.writer(file, lineterminator="\n")
        self._names: list[str] = []

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if not self._names:
                self._names = list(row)
                self._writer.writerow(self._names)
            self._writer.writerow([to_csv(row[n]) for n in self._names])
        self._file.flush()

    def progress(self, epoch: int, lsn: int, watermark: int | None) -> None:
        raise fail("PSK-1012", "CSV cannot show progress.", hint="Use --format jsonl, or remove progress = true.")

    def close(self) -> None:
        pass


def weight_of(row: Row) -> int:
    """The weight of a row in any envelope; 1 if the row has none."""
    if row.get("__op") == "delete" or (row.get("op") == "d" and "before" in row):
        return -1
    return int(row.get(WEIGHT, 1))


def _progress_row(epoch: int, lsn: int, watermark: int | None) -> Row:
    return {"__progress": {"epoch": epoch, "lsn": lsn, "watermark": watermark}}


def _aligned(value: Any, width: int) -> str:
    text = to_cell(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return text.rjust(width) if is_number else text.ljust(width)
