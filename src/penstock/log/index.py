"""The in-memory index: the entries and the state of each object."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from penstock.log.entry import Entry
from penstock.log.frame import Frame
from penstock.log.holding import Holding, Kept
from penstock.log.run import Run
from penstock.log.segment import Segment
from penstock.log.state import ObjectState


class _Object:
    """The entries of an object, one run per segment. They include every epoch from `since` on that had rows."""

    __slots__ = ("bytes", "rows", "runs", "since")

    def __init__(self, since: int) -> None:
        self.runs: list[Run] = []
        self.bytes = 0
        self.rows = 0
        self.since = since


class Slice(NamedTuple):
    """Some entries of a run."""

    run: Run
    start: int
    end: int


class Index:
    """Entries by object, in LSN order. Not thread-safe: the caller must serialise calls.

    Of consecutive entries without rows only the newest is kept: its watermark is the same or later. So a source that only sends heartbeats
    has one entry.
    """

    def __init__(self) -> None:
        self._objects: dict[int, _Object] = {}
        self._by_segment: dict[int, dict[int, Run]] = {}
        self.states: dict[int, ObjectState] = {}

    def add(self, at: int, frame: Frame, segment: Segment) -> None:
        """Adds the entry of a frame whose payload begins at an offset of a segment."""
        object_id, rows = frame.object_id, frame.rows
        of = self._objects.get(object_id)
        if of is None:
            of = self._objects[object_id] = _Object(frame.since)
        runs = of.runs
        last = runs[-1] if runs else None
        if not rows and last is not None and _marks(frame) and last.marks(len(last) - 1):
            last.drop_last()
            self._let_go(of, last, 1)
            last = runs[-1] if runs else None
        if last is None or last.segment is not segment:
            last = Run(object_id, segment)
            runs.append(last)
            self._by_segment.setdefault(segment.number, {})[object_id] = last
        last.add(at, frame)
        segment.needed += 1
        of.rows += rows
        of.bytes += frame.payload_length

    def entries(self, object_id: int, after: int, up_to: int, limit: int | None) -> list[Entry]:
        found: list[Entry] = []
        for run, start, end in self._slices(object_id, after, up_to):
            if limit is not None:
                end = min(end, start + limit - len(found))
            found += run.entries(start, end)
            if limit is not None and len(found) >= limit:
                break
        return found

    def amount(self, object_id: int, after: int, up_to: int) -> tuple[int, int]:
        """The bytes and rows of some entries."""
        slices = self._slices(object_id, after, up_to)
        return sum(r.bytes(s, e) for r, s, e in slices), sum(r.row_count(s, e) for r, s, e in slices)

    def first(self, object_id: int) -> Entry | None:
        of = self._objects.get(object_id)
        return of.runs[0].entries(0, 1)[0] if of else None

    def last(self, object_id: int, up_to: int) -> Entry | None:
        of = self._objects.get(object_id)
        for run in reversed(of.runs if of else []):
            count = run.count_up_to(up_to)
            if count:
                return run.entries(count - 1, count)[0]
        return None

    def lsn_at_epoch(self, object_id: int, epoch: int) -> int:
        of = self._objects.get(object_id)
        for run in reversed(of.runs if of else []):
            count = run.count_up_to_epoch(epoch)
            if count:
                return run.lsn(count - 1)
        return 0

    def has(self, object_id: int, lsn: int) -> bool:
        return bool(self._slices(object_id, lsn - 1, lsn))

    def reaches_back(self, object_id: int, epoch: int) -> bool:
        of = self._objects.get(object_id)
        if of is not None:
            return of.since <= epoch + 1
        return self.states.get(object_id, ObjectState()).row_epoch <= epoch

    def retained(self, object_id: int) -> tuple[int, int, int]:
        of = self._objects.get(object_id)
        return (of.bytes, of.rows, of.runs[0].time_ms(0)) if of else (0, 0, 0)

    def beyond_bytes(self, object_id: int, limit: int) -> int:
        """The LSN up to which entries must be removed so that the rest fits a limit; 0 if none."""
        of = self._objects.get(object_id)
        size = 0
        for run in reversed(of.runs if of else []):
            found = run.beyond(limit - size) if size + run.size > limit else None
            if found is not None:
                return run.lsn(found)
            size += run.size
        return 0

    def before_time(self, object_id: int, time_ms: int) -> int:
        """The LSN of the last entry committed before a time; 0 if there is none."""
        of = self._objects.get(object_id)
        found = 0
        for run in of.runs if of else []:
            count = len(run)
            if run.time_ms(count - 1) >= time_ms:
                count = run.count_before(time_ms)
            if count:
                found = run.lsn(count - 1)
            if count < len(run):
                break
        return found

    def remove(self, object_id: int, up_to: int) -> int:
        """Removes an object's entries up to an LSN."""
        of = self._objects.get(object_id)
        count = 0
        while of is not None and of.runs:
            run = of.runs[0]
            part = run.count_up_to(up_to)
            if part == 0:
                break
            with_rows = run.last_with_rows(part)
            if with_rows is not None:
                of.since = run.epoch(with_rows) + 1
            of.bytes -= run.bytes(0, part)
            of.rows -= run.row_count(0, part)
            count += part
            run.drop_first(part)
            self._let_go(of, run, part)
        if of is not None and not of.runs:
            del self._objects[object_id]
        return count

    def runs_in(self, segment: Segment) -> list[Run]:
        """The needed entries of a segment, one run per object."""
        return list(self._by_segment.get(segment.number, {}).values())

    def holdings(self) -> list[Holding]:
        found = []
        for object_id, of in sorted(self._objects.items()):
            alone = sum(r.segment.disk_bytes for r in of.runs if len(self._by_segment[r.segment.number]) == 1)
            found.append(Holding(object_id, of.runs[0].lsn(0), of.bytes, alone))
        return found

    def kept(self, segments: Sequence[Segment]) -> list[Kept]:
        return [
            Kept(
                s.number,
                s.first_lsn,
                s.disk_bytes,
                {i: run.size for i, run in sorted(self._by_segment.get(s.number, {}).items())},
            )
            for s in segments
        ]

    def _slices(self, object_id: int, after: int, up_to: int) -> list[Slice]:
        of = self._objects.get(object_id)
        if of is None or up_to <= after:
            return []
        runs = of.runs
        found = []
        for run in runs[bisect_left(runs, after + 1, key=_last_lsn) :]:
            if run.lsn(0) > up_to:
                break
            start, end = run.count_up_to(after), run.count_up_to(up_to)
            if start < end:
                found.append(Slice(run, start, end))
        return found

    def _let_go(self, of: _Object, run: Run, count: int) -> None:
        """Accounts for entries of a run, the first or the last of its object, that are no longer needed."""
        run.segment.needed -= count
        if not len(run):
            of.runs.remove(run)
            in_segment = self._by_segment[run.segment.number]
            del in_segment[run.object_id]
            if not in_segment:
                del self._by_segment[run.segment.number]


def _marks(frame: Frame) -> bool:
    """Whether a frame has no payload."""
    return not frame.batches


def _last_lsn(run: Run) -> int:
    return run.lsn(len(run) - 1)
