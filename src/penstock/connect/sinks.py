"""What a sink is, and which there are."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Protocol

import pyarrow as pa

from penstock.catalog.objects import Connector
from penstock.connect.access import Access
from penstock.connect.secrets import guarded, resolve, shielded
from penstock.errors import fail


class Sink(Protocol):
    """Takes the epochs of one stream, in order. `write` may be called again with an epoch that was written before: after a crash."""

    @property
    def accepts_changelog(self) -> bool:
        """True if rows may come with `__weight`, and with it as retractions."""

    def open(self, schema: pa.Schema, resume_epoch: int) -> None:
        """Before the first write. Epochs up to `resume_epoch` were acknowledged and will not come again."""

    def write(self, epoch: int, lsn: int, table: pa.Table) -> None:
        """Takes one epoch: durable when it returns, as far as the sink can be."""

    def flush(self) -> None:
        """Everything written so far has left this process."""

    def close(self) -> None: ...

    def last_epoch(self) -> int:
        """The newest epoch that the sink itself knows to hold; 0 if none, or if it cannot tell."""


Factory = Callable[[Connector, Access], Sink]
_FACTORIES: dict[str, Factory] = {}
SINK_OPTIONS: dict[str, tuple[str, ...]] = {}


def register_sink(name: str, options: tuple[str, ...]) -> Callable[[Factory], Factory]:
    """Makes a factory known under a connector name. It checks all options when it is called."""

    def register(factory: Factory) -> Factory:
        _FACTORIES[name.upper()] = factory
        SINK_OPTIONS[name.upper()] = options
        return factory

    return register


def sink_names() -> list[str]:
    return sorted(_FACTORIES)


def make_sink(connector: Connector, *, changelog: bool, access: Access | None = None) -> Sink:
    """The sink of a connector clause: PSK-5001 if there is none of that name, PSK-5004 if it cannot take the stream.

    The clause is as it was written: its variables are replaced here, and no error of the sink shows them. PSK-0012 for
    what `access` does not allow.
    """
    factory = _FACTORIES.get(connector.name.upper())
    if factory is None:
        raise unknown_connector(connector.name, sink_names(), "sink")
    access = access or Access()
    connector = resolve(connector, access.substitute)
    sink = shielded(guarded(factory, connector)(connector, access), connector)
    if changelog and not sink.accepts_changelog:
        raise fail("PSK-5004", f"{connector.name.upper()} cannot take back rows, and the stream retracts some.")
    return sink


def unknown_connector(name: str, names: list[str], what: str) -> Exception:
    near = get_close_matches(name.upper(), names, n=1)
    hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(names)}."
    return fail("PSK-5001", f"There is no {what} connector {name!r}.", hint=hint)
