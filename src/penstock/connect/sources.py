"""The source protocol and the registry of sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from penstock.catalog.objects import Column, Connector
from penstock.connect.access import Access
from penstock.connect.decode import COLUMN_PREFIX
from penstock.connect.secrets import cleaned, guarded, resolve
from penstock.connect.sinks import unknown_connector
from penstock.connect.websocket import WEBSOCKET_OPTIONS, Insert, Report, Status, WebSocketSource


class Source(Protocol):
    """Inserts rows from its own thread."""

    def start(self, insert: Insert, report: Report) -> None:
        """Starts the thread. It passes rows to `insert`, and connection changes and errors to `report`."""

    def stop(self) -> None:
        """Stops the thread, and returns once its last row is inserted."""


class _Kind(NamedTuple):
    """`replayable`: after a crash the source can send again what was not committed. Otherwise rows are lost, and no sink has them exactly once."""

    make: Callable[[Connector, Sequence[Column]], Source]
    replayable: bool


_SOURCES: dict[str, _Kind] = {"WEBSOCKET": _Kind(WebSocketSource, replayable=False)}


SOURCE_OPTIONS: dict[str, tuple[str, ...]] = {"WEBSOCKET": (*WEBSOCKET_OPTIONS, f"{COLUMN_PREFIX}<column>")}


SOURCE_DELIVERY: dict[str, str] = {n: "replayable" if k.replayable else "not replayable" for n, k in _SOURCES.items()}


def source_names() -> list[str]:
    return sorted(_SOURCES)


def is_replayable(connector: Connector) -> bool:
    """Whether the source of a connector clause can send rows again; False for an unknown connector."""
    kind = _SOURCES.get(connector.name.upper())
    return kind is not None and kind.replayable


class _Reporting:
    """Wraps a source so that its reports show no secrets of its connector."""

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
    """Creates the source of an unresolved connector clause and checks all options. Raises PSK-5001 for an unknown connector.

    Substitutes the variables of the clause; the source's reports never show their values.
    """
    kind = _SOURCES.get(connector.name.upper())
    if kind is None:
        raise unknown_connector(connector.name, source_names(), "source")
    connector = resolve(connector, (access or Access()).substitute)
    return _Reporting(guarded(kind.make, connector)(connector, columns), connector)
