"""Sources of lookup tables, and their registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.catalog.objects import Column, Connector
from penstock.connect.access import Access
from penstock.connect.registry import Registry
from penstock.connect.secrets import guarded, resolve, shielded


class LookupSource(Protocol):
    """External reference data. A failed call raises a PenstockError and can be retried.

    Rows have the declared columns, converted without loss. Calls come from one thread at a time, except `cancel`, which any thread may call.
    """

    def check(self) -> None:
        """Raises if the source is unreachable or lacks a declared column."""

    def scan(self) -> pa.Table:
        """All rows, as a consistent snapshot."""

    def fetch(self, keys: pa.Table) -> pa.Table:
        """The rows with these keys, which are distinct and not NULL. The result may include rows with other keys."""

    def cancel(self) -> None:
        """Interrupts a running call, if possible."""

    def close(self) -> None: ...


Factory = Callable[[Connector, Sequence[Column], Sequence[str], Access], LookupSource]
"""Creates the source for a connector clause, the declared columns and the key. It checks all options and does not connect."""


@dataclass(frozen=True)
class LookupConnector:
    make: Factory
    options: tuple[str, ...]
    by_key: bool
    """Whether single rows can be fetched by key, as strategy = 'on-demand' needs."""

    def factory(
        self, connector: Connector, columns: Sequence[Column], key: Sequence[str], access: Access | None = None
    ) -> LookupSource:
        """Creates the source of an unresolved connector clause. Substitutes its variables; the source's errors never show their values."""
        access = access or Access()
        connector = resolve(connector, access.substitute)
        return shielded(guarded(self.make, connector)(connector, columns, key, access), connector)


LOOKUPS = Registry[LookupConnector]("lookup")


def register_lookup(name: str, options: tuple[str, ...], *, by_key: bool) -> Callable[[Factory], Factory]:
    """Registers a factory, or a class, for `CREATE LOOKUP TABLE … FROM name (…)`. `options` are for SHOW CONNECTORS."""

    def register(factory: Factory) -> Factory:
        LOOKUPS.add(name, LookupConnector(factory, options, by_key))
        return factory

    return register


def lookup_names() -> list[str]:
    return LOOKUPS.names()


def find_lookup(name: str) -> LookupConnector:
    """Raises PSK-5001 if there is no lookup connector of that name."""
    return LOOKUPS.find(name)
