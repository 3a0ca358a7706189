"""How much of the log each object retains."""

from __future__ import annotations

from typing import NamedTuple


class Holding(NamedTuple):
    """The part of the log that one object retains: its oldest entry, the bytes of its entries, and the space of segments that only it needs."""

    object_id: int
    first_lsn: int
    bytes: int
    alone_bytes: int


class Kept(NamedTuple):
    """A segment that cannot be deleted: its first LSN, its space on disk, and the bytes in it that each object needs.

    The last segment is always kept, even if no object needs it.
    """

    number: int
    first_lsn: int
    disk_bytes: int
    needed: dict[int, int]
