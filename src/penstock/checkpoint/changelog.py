"""The changelog buffer: a ring of entries of fixed size."""

from __future__ import annotations

from enum import Enum

from penstock.checkpoint.entry import LAYOUT, StreamChangelogEntry
from penstock.checkpoint.kinds import CheckpointErrorKind


class OverflowPolicy(Enum):
    """What a full buffer does with a new entry: DROP_NEW drops it, OVERWRITE_OLDEST drops the oldest entry instead."""

    DROP_NEW = "drop_new"
    OVERWRITE_OLDEST = "overwrite_oldest"


class StreamChangelogBuffer:
    """Holds up to `capacity` entries, 24 bytes each, in memory that is allocated once.

    Not thread-safe; `StreamCheckpointManager` guards its own with a lock.
    """

    def __init__(self, capacity: int, policy: OverflowPolicy = OverflowPolicy.DROP_NEW) -> None:
        if capacity <= 0:
            raise CheckpointErrorKind.INVALID_CONFIG.error("changelog_capacity must be > 0")
        try:
            self._entries = bytearray(capacity * LAYOUT.size)
        except (MemoryError, OverflowError):
            raise CheckpointErrorKind.INVALID_CONFIG.error(
                f"changelog_capacity = {capacity} is more than there is memory for"
            ) from None
        self._capacity = capacity
        self._policy = policy
        self._write = 0
        self._read = 0
        self._count = 0
        self._overflows = 0

    def push(self, entry: StreamChangelogEntry) -> bool:
        """False if the entry was dropped because the buffer is full."""
        full = self._count == self._capacity
        if full and self._policy is OverflowPolicy.DROP_NEW:
            self._overflows += 1
            return False
        # In a full ring the write position is the oldest entry.
        entry.pack_into(self._entries, self._write * LAYOUT.size)
        self._write = (self._write + 1) % self._capacity
        if full:
            self._overflows += 1
            self._read = self._write
        else:
            self._count += 1
        return True

    def pop(self) -> StreamChangelogEntry | None:
        """Removes and returns the oldest entry; None if the buffer is empty."""
        if not self._count:
            return None
        entry = StreamChangelogEntry.from_bytes(self._entries, self._read * LAYOUT.size)
        self._read = (self._read + 1) % self._capacity
        self._count -= 1
        return entry

    def drain(self, limit: int | None = None) -> list[StreamChangelogEntry]:
        """Removes and returns up to `limit` entries, the oldest first; None: all."""
        count = self._count if limit is None else max(0, min(limit, self._count))
        return [entry for _ in range(count) if (entry := self.pop()) is not None]

    def __len__(self) -> int:
        return self._count

    @property
    def is_empty(self) -> bool:
        return not self._count

    @property
    def is_full(self) -> bool:
        return self._count == self._capacity

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def overflow_count(self) -> int:
        """How many entries were dropped, new or old, since the buffer was created."""
        return self._overflows

    def __repr__(self) -> str:
        return f"StreamChangelogBuffer(capacity={self._capacity}, len={self._count}, overflow_count={self._overflows})"
