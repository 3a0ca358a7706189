"""The index in memory: which entries each object has, and what is known of it."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from penstock.log.carry import Carry
from penstock.log.entry import Entry
from penstock.log.segment import Segment

_LSN = attrgetter("lsn")


class _Object:
    __slots__ = ("bytes", "entries", "rows", "segments")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.segments: list[Segment] = []
        self.bytes = 0
        self.rows = 0


class Index:
    """Entries by object, in LSN order. The caller sees to it that one thread at a time is in here."""

    def __init__(self) -> None:
        self._objects: dict[int, _Object] = {}
        self.carries: dict[int, Carry] = {}

    def add(self, entry: Entry, segment: Segment) -> None:
        of = self._objects.get(entry.object_id)
        if of is None:
            of = self._objects[entry.object_id] = _Object()
        of.entries.append(entry)
        of.segments.append(segment)
        of.bytes += entry.length
        of.rows += entry.rows
        segment.needed += 1

    def object_ids(self) -> list[int]:
        return sorted(self._objects)

    def entries(self, object_id: int, after: int, up_to: int) -> list[Entry]:
        of = self._objects.get(object_id)
        if of is None:
            return []
        start = bisect_right(of.entries, after, key=_LSN)
        end = bisect_right(of.entries, up_to, lo=start, key=_LSN)
        return of.entries[start:end]

    def first(self, object_id: int) -> Entry | None:
        of = self._objects.get(object_id)
        return of.entries[0] if of else None

    def last(self, object_id: int) -> Entry | None:
        of = self._objects.get(object_id)
        return of.entries[-1] if of else None

    def retained(self, object_id: int) -> tuple[int, int, int]:
        of = self._objects.get(object_id)
        return (of.bytes, of.rows, of.entries[0].time_ms) if of else (0, 0, 0)

    def remove(self, object_id: int, up_to: int) -> list[Entry]:
        """Takes out an object's entries up to an LSN and returns them."""
        of = self._objects.get(object_id)
        if of is None:
            return []
        count = bisect_right(of.entries, up_to, key=_LSN)
        removed = of.entries[:count]
        for entry, segment in zip(removed, of.segments, strict=False):
            of.bytes -= entry.length
            of.rows -= entry.rows
            segment.needed -= 1
        del of.entries[:count], of.segments[:count]
        if not of.entries:
            del self._objects[object_id]
        return removed
