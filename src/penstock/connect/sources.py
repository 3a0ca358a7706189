"""Which sources there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from penstock.catalog.objects import Column, Connector
from penstock.connect.access import Access
from penstock.connect.decode import COLUMN_PREFIX
from penstock.connect.secrets import cleaned, guarded, resolve
from penstock.connect.sinks import unknown_connector
from penstock.connect.websocket import WEBSOCKET_OPTIONS, Insert, Report, Status, WebSocketSource


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


class _Reporting:
    """A source that shows no secrets of its connector in what it reports."""

    def __init__(self, source: Source, connector: Connector) -> None:
        self._source = source
        self._connector = connector

    def start(self, insert: Insert, report: Report) -> None:
        def clean(status: Status) -> object:
            return report(replace(status, error=cleaned(status.error, self._connector)) if status.error else status)

        guarded(self._source.start, self._connector)(insert, clean)

    def stop(self) -> None:
        guarded(self._source.stop, self._connector)()


def make_source(connector: Connector, columns: Sequence[Column], access: Access | None = None) -> Source:
    """The source of a connector clause; all options are checked here. PSK-5001 if there is none of that name.

    The clause is as it was written: its variables are replaced here, and nothing that the source reports shows them.
    """
    factory = _SOURCES.get(connector.name.upper())
    if factory is None:
        raise unknown_connector(connector.name, source_names(), "source")
    connector = resolve(connector, (access or Access()).substitute)
    return _Reporting(guarded(factory, connector)(connector, columns), connector)
