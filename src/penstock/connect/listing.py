"""The rows of `SHOW CONNECTORS`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.connect.lookups import LOOKUPS
from penstock.connect.sinks import SINKS
from penstock.connect.sources import SOURCES


@dataclass(frozen=True)
class ConnectorInfo:
    name: str
    direction: Literal["source", "sink", "lookup"]
    options: tuple[str, ...]
    delivery: str | None = None
    """Of a source: `replayable` or `not replayable`. Of a sink: its strongest guarantee."""


def connectors() -> list[ConnectorInfo]:
    """Every connector and its options, ordered by name."""
    sources = [ConnectorInfo(n, "source", c.options, c.delivery) for n, c in SOURCES.items()]
    sinks = [ConnectorInfo(n, "sink", c.options, c.delivery) for n, c in SINKS.items()]
    lookups = [ConnectorInfo(n, "lookup", c.options) for n, c in LOOKUPS.items()]
    return sorted(sources + sinks + lookups, key=lambda c: (c.name, c.direction))
