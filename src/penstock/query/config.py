"""Options for compiling and running a query."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from penstock.errors import fail


class BackpressureStrategy(Enum):
    """What `submit` does when more than `max_pending` rows are pending. PAUSE_SOURCE: it waits, and raises PSK-0010 at the timeout. DROP_NEWEST: it drops and
    counts the rows. REFUSE: it raises PSK-5021."""

    PAUSE_SOURCE = "pause"
    DROP_NEWEST = "drop"
    REFUSE = "refuse"


class StateStore(Enum):
    """Where operators keep their state. Spark keeps it in RocksDB; the others are refused (PSK-1012)."""

    ROCKSDB = "rocksdb"
    IN_MEMORY = "memory"
    MMAP = "mmap"


@dataclass(frozen=True)
class BatchPolicy:
    """Submitted rows are committed when there are `max_rows` of them, or when the first has waited `max_delay` seconds."""

    max_rows: int = 1024
    max_delay: float = 0.01

    def __post_init__(self) -> None:
        if self.max_rows < 1 or self.max_delay < 0:
            raise fail("PSK-0009", "A batch has at least one row, and a delay of zero or more.")


@dataclass(frozen=True)
class QueryConfig:
    """`jit`: whether to generate code, which does not affect results. `batch_policy`: how rows become commits. `backpressure`, `max_pending`,
    `pause_timeout`: what happens when the query is behind by this many rows, and how long `submit` waits for it. `max_cache_entries`: the number of
    cached plans. `state_store`: see `StateStore`."""

    jit: bool = True
    batch_policy: BatchPolicy = field(default_factory=BatchPolicy)
    backpressure: BackpressureStrategy = BackpressureStrategy.PAUSE_SOURCE
    max_pending: int = 1_000_000
    pause_timeout: float = 60.0
    max_cache_entries: int = 64
    state_store: StateStore = StateStore.ROCKSDB

    def __post_init__(self) -> None:
        if self.state_store is not StateStore.ROCKSDB:
            raise fail(
                "PSK-1012",
                f"State cannot be kept in {self.state_store.value}.",
                hint="Use StateStore.ROCKSDB, the default.",
            )
        if self.max_cache_entries < 0 or self.max_pending < 1 or self.pause_timeout < 0:
            raise fail("PSK-0009", "max_cache_entries and pause_timeout are zero or more, max_pending one or more.")
