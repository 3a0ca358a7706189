"""Errors that name a file, and where possible the line, the column and the value."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import PenstockError, fail

_SCHEMA = "Correct the file; or give the column another type, such as STRING."


class BadRow(Exception):
    """The row with a 0-based number cannot be read."""

    def __init__(self, row: int, column: str | None, reason: str) -> None:
        super().__init__(reason)
        self.row = row
        self.column = column
        self.reason = reason


def bad_row(file: Path, place: str, why: BadRow) -> PenstockError:
    column = f", column {why.column!r}" if why.column is not None else ""
    return fail("PSK-5007", f"{file}, {place}{column}: {why.reason.rstrip('.')}.", hint=_SCHEMA)


def unreadable(file: Path, why: str, hint: str | None = None) -> PenstockError:
    return fail("PSK-1021", f"{file}: {why.rstrip('.')}.", hint=hint)
