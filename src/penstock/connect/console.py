"""CONSOLE: a sink that prints rows to standard output."""

from __future__ import annotations

import sys

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from penstock.catalog.objects import Connector
from penstock.connect.access import Access
from penstock.connect.options import check_options, choice
from penstock.connect.sinks import Capabilities, Sink, register_sink
from penstock.errors import fail

_OPTIONS = ("style",)


class ConsoleSink(Sink):
    """`style = 'table'` prints a table for each epoch, `plain` prints tab-separated values, one line per row.

    At least once: an epoch that is replayed after a crash is printed again.
    """

    capabilities = Capabilities(changelog=True)

    def __init__(self, style: str) -> None:
        self._style = style

    def write(self, epoch: int, lsn: int, table: pa.Table) -> None:
        if self._style == "plain":
            for row in table.to_pylist():
                sys.stdout.write("\t".join(_cell(v) for v in row.values()) + "\n")
        else:
            drawn = Table(*table.column_names, title=f"epoch {epoch}")
            for row in table.to_pylist():
                drawn.add_row(*(_cell(v) for v in row.values()))
            Console(file=sys.stdout, markup=False, highlight=False).print(drawn)

    def pre_commit(self, epoch: int) -> None:
        sys.stdout.flush()


def _cell(value: object) -> str:
    return "NULL" if value is None else str(value)


@register_sink("CONSOLE", _OPTIONS, exactly_once=False)
def _make(connector: Connector, access: Access) -> ConsoleSink:
    check_options("CONSOLE", connector.options, _OPTIONS)
    if connector.format or connector.format_options:
        raise fail("PSK-1012", "CONSOLE does not support FORMAT.", hint="Use style = 'table' or style = 'plain'.")
    return ConsoleSink(choice("CONSOLE", "style", connector.options.get("style", "table"), ("table", "plain")))
