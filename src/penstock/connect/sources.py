"""Which sources there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.catalog.objects import Column, Connector
from penstock.connect.decode import COLUMN_PREFIX
from penstock.connect.sinks import unknown_connector
from penstock.connect.websocket import WEBSOCKET_OPTIONS, Insert, Report, WebSocketSource


class Source(Protocol):
    """Brings rows in from a thread of its own."""

    def start(self, insert: Insert, report: Report) -> None:
        """Rows go to `insert`, changes of the connection and errors to `report`."""

    def stop(self) -> None:
        """Returns when the last row is inserted."""


_SOURCES: dict[str, Callable[[Connector, Sequence[Column]], Source]] = {"WEBSOCKET": WebSocketSource}


SOURCE_OPTIONS: dict[str, tuple[str, ...]] = {"WEBSOCKET": (*WEBSOCKET_OPTIONS, f"{COLUMN_PREFIX}<column>")}


def source_names() -> list[str]:
    return sorted(_SOURCES)


def make_source(connector: Connector, columns: Sequence[Column]) -> Source:
    """The source of a connector clause; all options are checked here. PSK-5001 if there is none of that name."""
    factory = _SOURCES.get(connector.name.upper())
    if factory is None:
        raise unknown_connector(connector.name, source_names(), "source")
    return factory(connector, columns)
