"""The sink contract and the registry of sinks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from penstock.catalog.objects import Connector
from penstock.connect.access import Access
from penstock.connect.registry import Registry
from penstock.connect.secrets import guarded, resolve, shielded
from penstock.errors import fail


@dataclass(frozen=True)
class Capabilities:
    """`changelog`: the sink accepts rows with `__weight`, including retractions. `exactly_once`: see `Sink`.

    `prepares`: what is pre-committed survives a crash, and `commit` can be called again after it. A sink that does not prepare commits atomically, together with
    the number of the epoch, and knows after a crash what it has committed.
    """

    changelog: bool = False
    exactly_once: bool = False
    prepares: bool = False
    takes_back: bool = False
    """See `Sink.take_back`."""


@dataclass(frozen=True)
class Opening:
    """What a sink is opened with: its identity, the schema of its rows, the last epoch that was committed to it (0: none), and whether it has to deliver exactly once."""

    identity: str
    schema: pa.Schema
    committed: int = 0
    exactly_once: bool = False


class Sink:
    """Receives the epochs of one stream, in order, in transactions of one or more epochs:

    1. `begin(first)`.
    2. `write`, for each epoch that has rows.
    3. `pre_commit(last)`: everything written has arrived, and `commit` can no longer fail because of the rows.
    4. The decision to commit is made durable: by the caller if the sink `prepares`; otherwise `commit` itself is the decision.
    5. `commit(last)`: everything up to an epoch is visible.

    After a failure or a crash the sink is opened again. Epochs that were decided are then committed, others are rolled back and written
    again, with the same numbers and the same rows. A sink that is `exactly_once` has each epoch once, whenever it is interrupted.

    All calls come from one thread, except `cancel`. The defaults are those of a sink that has no transactions.
    """

    capabilities = Capabilities()

    def open(self, opening: Opening) -> int:
        """Prepares for the first transaction. Returns the last epoch that is committed, which may be later than the caller knows."""
        return opening.committed

    def begin(self, epoch: int) -> None:
        """Starts a transaction with this epoch or a later one."""

    def write(self, epoch: int, lsn: int, table: pa.Table) -> None:
        """Writes one epoch."""
        raise NotImplementedError

    def pre_commit(self, epoch: int) -> None:
        """Ends the transaction, of which this is the last epoch."""

    def commit(self, epoch: int) -> None:
        """Makes every epoch up to this one visible. Does nothing for those that already are."""

    def has(self, epoch: int) -> bool:
        """Whether an epoch that was decided has arrived. Asked after a crash, for the epochs of the last transaction, when it has been committed again."""
        return True

    def rollback(self, epoch: int) -> None:
        """Discards what was written from this epoch on and is not committed."""

    def take_back(self, after: int, up_to: int) -> None:
        """Removes what was committed or prepared of the epochs in (`after`, `up_to`], because the database was restored to before them; if they are gone already, does nothing.
        Called after `open`, and before the first transaction. Only of a sink that `takes_back`."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Makes a call that is under way in another thread fail soon, if the sink can."""

    def close(self) -> None:
        """Releases everything. What is not committed may be lost."""


Factory = Callable[[Connector, Access], Sink]
"""Creates the sink for a connector clause. It checks all options and does not connect."""


@dataclass(frozen=True)
class SinkConnector:
    make: Factory
    options: tuple[str, ...]
    exactly_once: bool

    @property
    def delivery(self) -> str:
        """The strongest guarantee of its sinks."""
        return "exactly-once" if self.exactly_once else "at-least-once"


SINKS = Registry[SinkConnector]("sink")


def register_sink(name: str, options: tuple[str, ...], *, exactly_once: bool) -> Callable[[Factory], Factory]:
    """Registers a factory, or a class, for `CREATE SINK … INTO name (…)`. `options` are for SHOW CONNECTORS. `exactly_once`: some of its sinks can deliver exactly once."""

    def register(factory: Factory) -> Factory:
        SINKS.add(name, SinkConnector(factory, options, exactly_once))
        return factory

    return register


def sink_names() -> list[str]:
    return SINKS.names()


def make_sink(connector: Connector, *, changelog: bool, access: Access | None = None) -> Sink:
    """Creates the sink of an unresolved connector clause. Substitutes its variables; the sink's errors never show their values.

    Raises PSK-5001 for an unknown connector, PSK-5004 if it cannot accept the stream, PSK-0012 for anything that `access` does not allow.
    """
    factory = SINKS.find(connector.name).make
    access = access or Access()
    connector = resolve(connector, access.substitute)
    sink = shielded(guarded(factory, connector)(connector, access), connector)
    if changelog and not sink.capabilities.changelog:
        raise fail("PSK-5004", f"{connector.name.upper()} cannot apply retractions, and this stream produces them.")
    return sink
