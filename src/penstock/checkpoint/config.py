"""The configuration of checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from penstock.checkpoint.changelog import OverflowPolicy
from penstock.checkpoint.kinds import CheckpointErrorKind


class WalMode(Enum):
    """ASYNC: entries are synced with the next checkpoint; a crash may lose the last ones. SYNC: each entry is synced."""

    ASYNC = "async"
    SYNC = "sync"


@dataclass(frozen=True)
class StreamCheckpointConfig:
    """What is checkpointed, when and where. Everything is off by default.

    `interval_ms`: time between two checkpoints; None: only on demand. `wal_mode`: how recorded changelog entries become durable; None: they do not.
    `data_dir`: folder of checkpoints and WAL; None: in memory only. `changelog_capacity`: entries in the changelog buffer; None: no buffer.
    `max_retained`: number of checkpoints to keep; None: all. `overflow_policy`: what a full changelog buffer drops.
    """

    interval_ms: int | None = None
    wal_mode: WalMode | None = None
    data_dir: Path | str | None = None
    changelog_capacity: int | None = None
    max_retained: int | None = None
    overflow_policy: OverflowPolicy = OverflowPolicy.DROP_NEW

    def validate(self) -> None:
        """Raises PSK-6015 for values that exclude each other, and for numbers that are out of range."""
        if self.wal_mode is not None and self.data_dir is None:
            raise CheckpointErrorKind.INVALID_CONFIG.error("WAL mode requires data_dir to be set")
        if self.changelog_capacity is not None and self.changelog_capacity <= 0:
            raise CheckpointErrorKind.INVALID_CONFIG.error("changelog_capacity must be > 0")
        if self.interval_ms is not None and self.interval_ms < 0:
            raise CheckpointErrorKind.INVALID_CONFIG.error("interval_ms must be >= 0")
        if self.max_retained is not None and self.max_retained < 0:
            raise CheckpointErrorKind.INVALID_CONFIG.error("max_retained must be >= 0")
