"""CONSOLE: rows on standard output."""

from __future__ import annotations

import sys

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from penstock.catalog.objects import Connector
from penstock.connect.access import Access
from penstock.connect.options import check_options, choice
from penstock.connect.sinks import register_sink
from penstock.errors import fail

_OPTIONS = ("style",)


class ConsoleSink:
    """`style = 'table'` draws a table for each epoch, `plain` writes a line of tab-separated values for each row.

    At least once: an epoch that is replayed after a crash is printed again.
    """

    def __init__(self, style: str) -> None:
        self._style = style

    @property
    def accepts_changelog(self) -> bool:
        return True

    def open(self, schema: pa.Schema, resume_epoch: int) -> None:
        """Nothing to prepare."""

    def write(self, epoch: int, lsn: int, table: pa.Table) -> None:
        if self._style == "plain":
            for row in table.to_pylist():
                sys.stdout.write("\t".join(_cell(v) for v in row.values()) + "\n")
        else:
            drawn = Table(*table.column_names, title=f"epoch {epoch}")
            for row in table.to_pylist():
                drawn.add_row(*(_cell(v) for v in row.values()))
            Console(file=sys.stdout, markup=False, highlight=False).print(drawn)
        sys.stdout.flush()

    def flush(self) -> None:
        sys.stdout.flush()

    def close(self) -> None:
        """Standard output is not ours to close."""

    def last_epoch(self) -> int:
        return 0


def _cell(value: object) -> str:
    return "NULL" if value is None else str(value)


@register_sink("CONSOLE", _OPTIONS)
def _make(connector: Connector, access: Access) -> ConsoleSink:
    check_options("CONSOLE", connector.options, _OPTIONS)
    if connector.format or connector.format_options:
        raise fail("PSK-1012", "CONSOLE has no FORMAT.", hint="Use style = 'table' or style = 'plain'.")
    return ConsoleSink(choice("CONSOLE", "style", connector.options.get("style", "table"), ("table", "plain")))
