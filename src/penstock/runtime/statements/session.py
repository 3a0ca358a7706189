"""One user's thread of statements."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.runtime.engine import Engine
from penstock.runtime.storage.writes import TableWriter, Write
from penstock.serve.subscription import Subscription


@dataclass
class Session:
    """An open transaction and cursors belong to it."""

    engine: Engine
    pending: list[Write] | None = None
    cursors: dict[str, Subscription] = field(default_factory=dict)
    last_lsn: int = 0

    @property
    def writer(self) -> TableWriter:
        return self.engine.writer
