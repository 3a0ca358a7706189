"""One user's sequence of statements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.runtime.engine import Engine
from penstock.runtime.statements.prepared import PreparedStatements
from penstock.runtime.storage.writes import TableWriter, Write
from penstock.serve.group import GroupSubscription
from penstock.serve.subscription import Subscription


@dataclass
class Session:
    """Owns the open transaction and the cursors. With `variables` it can only read, and row rules apply to it."""

    engine: Engine
    pending: list[Write] | None = None
    cursors: dict[str, Subscription | GroupSubscription] = field(default_factory=dict)
    last_lsn: int = 0
    prepared: PreparedStatements = field(default_factory=PreparedStatements)
    variables: Mapping[str, object] | None = None

    @property
    def writer(self) -> TableWriter:
        return self.engine.writer
