"""What a lookup table can be fed from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.catalog.objects import Column, Connector
from penstock.connect.access import Access
from penstock.connect.secrets import guarded, resolve, shielded
from penstock.connect.sinks import unknown_connector


class LookupSource(Protocol):
    """Reference data that is kept elsewhere. A call that fails raises a PenstockError and can be made again.

    Rows come in the declared columns, converted where nothing is lost. One thread calls at a time; `cancel` may be called by any.
    """

    def check(self) -> None:
        """Raises if the source cannot be reached, or has not the declared columns."""

    def scan(self) -> pa.Table:
        """All rows, as of one moment."""

    def fetch(self, keys: pa.Table) -> pa.Table:
        """The rows that have one of these keys: distinct, none of them NULL. Rows of other keys may come too."""

    def cancel(self) -> None:
        """Makes a call that is under way come to an end, if it can."""

    def close(self) -> None: ...


Factory = Callable[[Connector, Sequence[Column], Sequence[str], Access], LookupSource]
"""Makes the source of a connector clause from the declared columns and the key. It checks all options and connects to nothing."""


@dataclass(frozen=True)
class LookupConnector:
    make: Factory
    options: tuple[str, ...]
    by_key: bool
    """Whether single rows can be asked for, as strategy = 'on-demand' does."""

    def factory(
        self, connector: Connector, columns: Sequence[Column], key: Sequence[str], access: Access | None = None
    ) -> LookupSource:
        """The source of a connector clause as it was written: its variables are replaced here, and no error of the source shows them."""
        access = access or Access()
        connector = resolve(connector, access.substitute)
        return shielded(guarded(self.make, connector)(connector, columns, key, access), connector)


_CONNECTORS: dict[str, LookupConnector] = {}
LOOKUP_OPTIONS: dict[str, tuple[str, ...]] = {}


def register_lookup(name: str, options: tuple[str, ...], *, by_key: bool) -> Callable[[Factory], Factory]:
    """Makes a factory known under a connector name."""

    def register(factory: Factory) -> Factory:
        _CONNECTORS[name.upper()] = LookupConnector(factory, options, by_key)
        LOOKUP_OPTIONS[name.upper()] = options
        return factory

    return register


def lookup_names() -> list[str]:
    return sorted(_CONNECTORS)


def find_lookup(name: str) -> LookupConnector:
    """PSK-5001 if no lookup table can be fed by that name."""
    found = _CONNECTORS.get(name.upper())
    if found is None:
        raise unknown_connector(name, lookup_names(), "lookup")
    return found
