"""The source contract and the registry of sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import pyarrow as pa

from penstock.catalog.objects import Column, Connector
from penstock.connect.access import Access
from penstock.connect.registry import Registry
from penstock.connect.secrets import cleaned, guarded, resolve
from penstock.errors import PenstockError, fail


@dataclass(frozen=True)
class Status:
    """`connected`, `disconnected` (the source will reconnect) or `failed` (it will not), and the reason."""

    state: Literal["connected", "disconnected", "failed"]
    error: PenstockError | None = None


class Insert(Protocol):
    """Commits rows durably. It may take as long as it likes: while the source is full, or ahead of others, it waits.

    A replayable source gives each batch a position: a text of its own, from which it could go on after these rows.
    """

    def __call__(self, rows: pa.RecordBatch, position: str | None = None, /) -> object: ...


Report = Callable[[Status], object]


class Source(Protocol):
    """Inserts rows from its own thread."""

    def start(self, insert: Insert, report: Report) -> None:
        """Starts the thread. It passes rows to `insert`, and connection changes and errors to `report`."""

    def stop(self) -> None:
        """Stops the thread, and returns once its last row is inserted."""


class Replayable(Source, Protocol):
    """A source that can send rows again. The position of a batch is stored with its rows, so each row is committed once, whenever it is interrupted."""

    def resume(self, position: str | None) -> None:
        """Called once, before `start`: go on after the rows with this position, the last that was committed. None: from the beginning."""


Factory = Callable[[Connector, Sequence[Column], Access], Source]
"""Creates the source for a connector clause and the declared columns. It checks all options and does not connect."""


@dataclass(frozen=True)
class SourceConnector:
    """`replayable`: its sources are `Replayable`. Otherwise rows that were not committed are lost in a crash, and no sink has them exactly once."""

    make: Factory
    options: tuple[str, ...]
    replayable: bool

    @property
    def delivery(self) -> str:
        return "replayable" if self.replayable else "not replayable"


SOURCES = Registry[SourceConnector]("source")


def register_source(name: str, options: tuple[str, ...], *, replayable: bool) -> Callable[[Factory], Factory]:
    """Registers a factory, or a class, for `CREATE SOURCE … FROM name (…)`. `options` are for SHOW CONNECTORS."""

    def register(factory: Factory) -> Factory:
        SOURCES.add(name, SourceConnector(factory, options, replayable))
        return factory

    return register


def source_names() -> list[str]:
    return SOURCES.names()


def is_replayable(connector: Connector) -> bool:
    """Whether the source of a connector clause can send rows again; False for an unknown connector."""
    kind = SOURCES.get(connector.name)
    return kind is not None and kind.replayable


class _Reporting:
    """Wraps a source so that its reports show no secrets of its connector."""

    def __init__(self, source: Source, connector: Connector) -> None:
        self._source = source
        self._connector = connector

    def resume(self, position: str | None) -> None:
        go_on = getattr(self._source, "resume", None)
        if go_on is None:
            name = self._connector.name.upper()
            raise fail("PSK-5002", f"{name} is registered as replayable, but its source has no method resume.")
        guarded(go_on, self._connector)(position)

    def start(self, insert: Insert, report: Report) -> None:
        def clean(status: Status) -> object:
            return report(replace(status, error=cleaned(status.error, self._connector)) if status.error else status)

        guarded(self._source.start, self._connector)(insert, clean)

    def stop(self) -> None:
        guarded(self._source.stop, self._connector)()


def make_source(connector: Connector, columns: Sequence[Column], access: Access | None = None) -> Replayable:
    """Creates the source of an unresolved connector clause and checks all options. Raises PSK-5001 for an unknown connector.

    Substitutes the variables of the clause; the source's reports never show their values. Only a replayable source may be asked to resume.
    """
    kind = SOURCES.find(connector.name)
    access = access or Access()
    connector = resolve(connector, access.substitute)
    return _Reporting(guarded(kind.make, connector)(connector, columns, access), connector)
