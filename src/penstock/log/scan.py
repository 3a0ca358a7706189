"""Scans a segment when the log is opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from penstock.errors import PenstockError, fail
from penstock.log import frame
from penstock.log.frame import Frame
from penstock.log.maps import map_file
from penstock.log.segment import HEAD_LENGTH, Head, read_head
from penstock.log.thin import Map, read_map

Found = Callable[[int, Frame], None]
"""Called with each valid frame, in order, and the offset of its payload."""


class Opened(NamedTuple):
    """A segment to scan: its content, its head and, if it was thinned out, its map."""

    path: Path
    data: pa.Buffer
    head: Head
    map: Map | None

    @property
    def first_lsn(self) -> int:
        return self.head.first_lsn if self.map is None else self.map.first_lsn


def open_segment(path: Path, number: int) -> Opened:
    """Reads the head of a segment."""
    try:
        data = map_file(str(path))
    except OSError as error:
        raise fail("PSK-6001", f"{path} cannot be read: {error.strerror or error}.") from error
    head = read_head(path, number, data)
    return Opened(path, data, head, read_map(path, head, data) if head.thin else None)


def scan_segment(opened: Opened, found: Found, *, last: bool) -> tuple[int, int]:
    """Reads the headers of a segment. Returns the next LSN and the end of the last commit.

    In the last segment, payloads are verified too, and an unfinished tail is ignored. Any other invalid data is damage: PSK-6001 with
    the file and the offset.
    """
    if opened.map is not None:
        return _scan_ranges(opened, opened.map, found)
    data, head = opened.data, opened.head
    next_lsn, end = head.first_lsn, head.length
    position = end
    commit: list[tuple[int, Frame]] = []
    while (one := _frame_at(data, position, next_lsn, head.version, verify=last)) is not None:
        payload, header = one
        commit.append(one)
        position = payload + header.payload_length
        if header.last:
            for part in commit:
                found(*part)
            commit.clear()
            next_lsn += 1
            end = position
    clean = not commit and _is_zero(data, position)
    if not clean and (not last or _was_durable(data, end, next_lsn, head.version)):
        raise _damaged(opened.path, position, next_lsn)
    return next_lsn, end


def _scan_ranges(opened: Opened, of: Map, found: Found) -> tuple[int, int]:
    """Scans a thinned-out segment. The map locates its frames, all of which belong to complete commits."""
    lsn, end = of.first_lsn, HEAD_LENGTH
    for position, end in of.ranges:
        while position < end:
            one = frame.header_at(opened.data, position, opened.head.version)
            if one is None or not lsn <= one[1].lsn < of.next_lsn or one[0] + one[1].payload_length > end:
                raise _damaged(opened.path, position, lsn)
            found(*one)
            lsn = one[1].lsn
            position = one[0] + one[1].payload_length
    return of.next_lsn, end


def _frame_at(data: pa.Buffer, position: int, lsn: int, version: int, *, verify: bool) -> tuple[int, Frame] | None:
    header = frame.header_at(data, position, version)
    if header is None or header[1].lsn != lsn:
        return None
    start, found = header
    if start + found.payload_length > data.size:
        return None
    if verify and not frame.is_whole(found, data.slice(start, found.payload_length)):
        return None
    return header


def _is_zero(data: pa.Buffer, position: int) -> bool:
    """Whether there is only reserved space from here on."""
    return position >= data.size or not data.slice(position).to_pybytes().strip(b"\0")


def _was_durable(data: pa.Buffer, position: int, lsn: int, version: int) -> bool:
    """Whether a later frame shows that this commit was already on disk: then it is damaged, not torn."""
    rest = data.slice(position).to_pybytes()
    at = rest.find(frame.MAGIC)
    while at >= 0:
        header = frame.header_at(data, position + at, version)
        if header is not None and header[1].durable_lsn >= lsn:
            return True
        at = rest.find(frame.MAGIC, at + 1)
    return False


def _damaged(path: Path, position: int, lsn: int) -> PenstockError:
    return fail("PSK-6001", f"{path} is damaged at offset {position}: commit {lsn} is not valid.")
