"""Who keeps how much of the log."""

from __future__ import annotations

from typing import NamedTuple


class Holding(NamedTuple):
    """What one object keeps: its oldest entry, the bytes of its entries, and the space of the segments that nobody else needs."""

    object_id: int
    first_lsn: int
    bytes: int
    alone_bytes: int


class Kept(NamedTuple):
    """A segment that cannot be deleted: its first LSN, its space on disk, and the bytes in it that each object needs.

    The last segment is always kept, also if nobody needs anything in it.
    """

    number: int
    first_lsn: int
    disk_bytes: int
    needed: dict[int, int]
