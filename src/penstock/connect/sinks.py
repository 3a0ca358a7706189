"""The sink protocol and the registry of sinks."""

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
    """Receives the epochs of one stream, in order. After a crash, `write` may be called again with an epoch that was already written."""

    @property
    def accepts_changelog(self) -> bool:
        """True if the sink accepts rows with `__weight`, including retractions."""

    def open(self, schema: pa.Schema, resume_epoch: int) -> None:
        """Called before the first write. Epochs up to `resume_epoch` were acknowledged and will not be written again."""

    def write(self, epoch: int, lsn: int, table: pa.Table) -> None:
        """Writes one epoch. It is durable on return, as far as the sink supports that."""

    def flush(self) -> None:
        """Returns once everything written so far has left this process."""

    def close(self) -> None: ...


Factory = Callable[[Connector, Access], Sink]
_FACTORIES: dict[str, Factory] = {}
SINK_OPTIONS: dict[str, tuple[str, ...]] = {}


def register_sink(name: str, options: tuple[str, ...]) -> Callable[[Factory], Factory]:
    """Registers a factory under a connector name. The factory must check all options."""

    def register(factory: Factory) -> Factory:
        _FACTORIES[name.upper()] = factory
        SINK_OPTIONS[name.upper()] = options
        return factory

    return register


def sink_names() -> list[str]:
    return sorted(_FACTORIES)


def make_sink(connector: Connector, *, changelog: bool, access: Access | None = None) -> Sink:
    """Creates the sink of an unresolved connector clause. Substitutes its variables; the sink's errors never show their values.

    Raises PSK-5001 for an unknown connector, PSK-5004 if it cannot accept the stream, PSK-0012 for anything that `access` does not allow.
    """
    factory = _FACTORIES.get(connector.name.upper())
    if factory is None:
        raise unknown_connector(connector.name, sink_names(), "sink")
    access = access or Access()
    connector = resolve(connector, access.substitute)
    sink = shielded(guarded(factory, connector)(connector, access), connector)
    if changelog and not sink.accepts_changelog:
        raise fail("PSK-5004", f"{connector.name.upper()} cannot apply retractions, and this stream produces them.")
    return sink


def unknown_connector(name: str, names: list[str], what: str) -> Exception:
    near = get_close_matches(name.upper(), names, n=1)
    hint = f"Did you mean {near[0]}?" if near else f"The connectors are {', '.join(names)}."
    return fail("PSK-5001", f"There is no {what} connector {name!r}.", hint=hint)
