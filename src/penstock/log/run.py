"""The entries of one object in one segment, as arrays of numbers."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from penstock.log.entry import Entry
from penstock.log.frame import Frame, header_length
from penstock.log.segment import Segment
from penstock.log.state import NO_WATERMARK

# An entry is its LSN and these numbers. A Python object would take seven times the memory.
_AT, _LENGTH, _ROWS, _WATERMARK, _EPOCH, _JOB_EPOCH, _TIME, _INPUT_LSN, _BEFORE, _FORM = range(10)
_FIELDS = 10
_RECORD = struct.Struct(f"{_FIELDS}q")

# Bits of the form, from the lowest: the column count, how the rows are stored, whether the object is idle, the checksum of a single message.
_KIND_AT, _IDLE_AT, _CRC_AT = 28, 30, 31
_SCHEMA, _KIND = (1 << _KIND_AT) - 1, 3
_NONE, _ONE, _ONE_BEFORE, _OTHER = range(4)


class Other(NamedTuple):
    """Extra data of an entry that is not a single message in the segment: it has several messages."""

    batches: tuple[tuple[int, int, int], ...]
    before: tuple[int, ...]
    checks: tuple[int, ...]

    def header_length(self, version: int) -> int:
        return header_length(len(self.batches), version, before=len(self.before))


class Run:
    """Entries in LSN order, added at the end and removed at either end."""

    __slots__ = ("_lsns", "_others", "_start", "_values", "object_id", "segment", "size")

    def __init__(self, object_id: int, segment: Segment) -> None:
        self.object_id = object_id
        self.segment = segment
        self.size = 0
        self._lsns = array("q")
        self._values = array("q")
        self._start = 0
        self._others: dict[int, Other] = {}

    def __len__(self) -> int:
        return len(self._lsns) - self._start

    def add(self, at: int, frame: Frame) -> None:
        """Adds the entry of a frame. `at` is the offset of its payload, if that is in the segment."""
        # Unpacking is faster than access by name, and this runs for every commit.
        (
            lsn,
            _,
            _,
            _,
            rows,
            watermark,
            epoch,
            job_epoch,
            time_ms,
            column_count,
            input_lsn,
            _,
            length,
            _,
            batches,
            idle,
            before,
            checks,
            _,
        ) = frame
        if not batches:
            kind = _NONE
        elif len(batches) == 1 and batches[0][0] == 0 and batches[0][1] == length:
            kind = _ONE_BEFORE if before else _ONE
        else:
            kind = _OTHER
        if kind == _OTHER:
            self._others[lsn] = Other(batches, before, checks)
        self.size += length
        self._lsns.append(lsn)
        wm = NO_WATERMARK if watermark is None else watermark
        mark = before[0] if kind == _ONE_BEFORE else 0
        crc = checks[0] if checks and kind in (_ONE, _ONE_BEFORE) else 0
        form = crc << _CRC_AT | idle << _IDLE_AT | kind << _KIND_AT | column_count
        self._values.frombytes(_RECORD.pack(at, length, rows, wm, epoch, job_epoch, time_ms, input_lsn, mark, form))

    def marks(self, i: int) -> bool:
        """Whether an entry has no payload."""
        return self._get(i, _FORM) >> _KIND_AT & _KIND == _NONE

    def lsn(self, i: int) -> int:
        return self._lsns[self._start + i]

    def epoch(self, i: int) -> int:
        return self._get(i, _EPOCH)

    def time_ms(self, i: int) -> int:
        return self._get(i, _TIME)

    def count_up_to(self, lsn: int) -> int:
        """The number of entries at or before an LSN."""
        return bisect_right(self._lsns, lsn, self._start) - self._start

    def count_up_to_epoch(self, epoch: int) -> int:
        return bisect_right(range(len(self)), epoch, key=self.epoch)

    def count_before(self, time_ms: int) -> int:
        """The number of entries committed before a time. If the clock was set back meanwhile, the result is off by as much."""
        return bisect_left(range(len(self)), time_ms, key=self.time_ms)

    def bytes(self, start: int, end: int) -> int:
        """The total length of some entries; that of all is `size`."""
        return self.size if end - start == len(self) else sum(self._column(_LENGTH, start, end))

    def beyond(self, limit: int) -> int | None:
        """The last entry for which it and the entries after it exceed a limit."""
        sizes = accumulate(reversed(self._column(_LENGTH, 0, len(self))))
        return next((len(self) - back for back, size in enumerate(sizes, 1) if size > limit), None)

    def row_count(self, start: int, end: int) -> int:
        return sum(self._column(_ROWS, start, end))

    def last_with_rows(self, count: int) -> int | None:
        """The last of the first `count` entries that has rows."""
        return next((i for i in range(count - 1, -1, -1) if self._get(i, _ROWS)), None)

    def entries(self, start: int, end: int) -> list[Entry]:
        """Materialises some entries."""
        file, object_id = self.segment.file, self.object_id
        start, end = self._start + start, self._start + end
        records = _RECORD.iter_unpack(self._values[start * _FIELDS : end * _FIELDS])
        found = []
        for lsn, record in zip(self._lsns[start:end], records, strict=True):
            at, length, rows, watermark, epoch, job_epoch, time_ms, input_lsn, before_one, form = record
            kind = form >> _KIND_AT & _KIND
            batches: tuple[tuple[int, int, int], ...] = ()
            before: tuple[int, ...] = ()
            checks: tuple[int, ...] = ()
            if kind in (_ONE, _ONE_BEFORE):
                batches, checks = ((at, length, rows),), (form >> _CRC_AT,)
                before = (before_one,) if kind == _ONE_BEFORE else ()
            elif kind == _OTHER:
                stored, before, checks = self._others[lsn]
                batches = tuple([(at + offset, size, count) for offset, size, count in stored])
            wm = None if watermark == NO_WATERMARK else watermark
            found.append(
                Entry._make(
                    (
                        lsn,
                        object_id,
                        file,
                        at,
                        length,
                        rows,
                        batches,
                        wm,
                        epoch,
                        job_epoch,
                        time_ms,
                        form & _SCHEMA,
                        input_lsn,
                        bool(form >> _IDLE_AT & 1),
                        before,
                        checks,
                    )
                )
            )
        return found

    def frames(self) -> Iterator[tuple[int, int]]:
        """The start and end offsets of the entries' frames in the segment."""
        version = self.segment.version
        plain = {
            _NONE: header_length(0, version),
            _ONE: header_length(1, version),
            _ONE_BEFORE: header_length(1, version, before=1),
        }
        for i in range(len(self)):
            at, length, kind = self._get(i, _AT), self._get(i, _LENGTH), self._get(i, _FORM) >> _KIND_AT & _KIND
            if kind == _OTHER:
                other = self._others[self.lsn(i)]
                yield at - other.header_length(version), at + length
            else:
                yield at - plain[kind], at + length

    def drop_first(self, count: int) -> None:
        self.size -= self.bytes(0, count)
        if self._others:
            for lsn in self._lsns[self._start : self._start + count]:
                self._others.pop(lsn, None)
        self._start += count
        # Moving the rest costs at most as much as the entries that were dropped.
        if self._start >= len(self):
            del self._values[: self._start * _FIELDS], self._lsns[: self._start]
            self._start = 0

    def drop_last(self) -> None:
        self.size -= self._get(len(self) - 1, _LENGTH)
        self._others.pop(self._lsns.pop(), None)
        del self._values[-_FIELDS:]

    def copy(self) -> Run:
        """A copy of the entries, for a reader that does not hold the lock."""
        copy = Run(self.object_id, self.segment)
        copy.size = self.size
        copy._lsns, copy._values = self._lsns[self._start :], self._values[self._start * _FIELDS :]
        copy._others = dict(self._others)
        return copy

    def _get(self, i: int, field: int) -> int:
        return self._values[(self._start + i) * _FIELDS + field]

    def _column(self, field: int, start: int, end: int) -> array[int]:
        return self._values[(self._start + start) * _FIELDS + field : (self._start + end) * _FIELDS : _FIELDS]
