"""The rows of `SHOW CONNECTORS`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.connect.lookups import LOOKUP_OPTIONS
from penstock.connect.sinks import SINK_DELIVERY, SINK_OPTIONS
from penstock.connect.sources import SOURCE_DELIVERY, SOURCE_OPTIONS


@dataclass(frozen=True)
class ConnectorInfo:
    name: str
    direction: Literal["source", "sink", "lookup"]
    options: tuple[str, ...]
    delivery: str | None = None
    """Of a source: `replayable` or `not replayable`. Of a sink: its strongest guarantee."""


def connectors() -> list[ConnectorInfo]:
    """Every connector and its options, ordered by name."""
    sources = [ConnectorInfo(n, "source", o, SOURCE_DELIVERY[n]) for n, o in SOURCE_OPTIONS.items()]
    sinks = [ConnectorInfo(n, "sink", o, SINK_DELIVERY[n]) for n, o in SINK_OPTIONS.items()]
    lookups = [ConnectorInfo(n, "lookup", o) for n, o in LOOKUP_OPTIONS.items()]
    return sorted(sources + sinks + lookups, key=lambda c: (c.name, c.direction))
