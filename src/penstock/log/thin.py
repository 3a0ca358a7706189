"""Thinned-out segments.

One needed entry keeps its whole segment on disk. When at most half of a segment is needed, a sparse file replaces it that has only the needed
frames, at the same offsets. So no reader has to be told: a Spark task that holds an offset finds the same bytes there, and a mapping of the old
file stays valid until it is dropped. The new file is written beside the old one and renamed, so a crash leaves one or the other.

The head of a thinned-out segment points to its map, behind the last frame: the LSNs that the segment covers, and the ranges of its frames.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import google_crc32c
import pyarrow as pa

from penstock.disk import write_durably
from penstock.errors import fail
from penstock.log.maps import map_file
from penstock.log.segment import HEAD_LENGTH, THIN, Head, Segment, pack_head

Range = tuple[int, int]
"""Start and end of neighbouring frames in a file."""

# crc, number of ranges | first lsn, lsn after the last
_MAP = struct.Struct("<II QQ")
_RANGE = struct.Struct("<QQ")
_CRC = struct.Struct("<I")


class Map(NamedTuple):
    """What a thinned-out segment holds."""

    first_lsn: int
    next_lsn: int
    ranges: list[Range]


def disk_bytes(path: Path) -> int:
    """The space that a file takes; holes take none."""
    return os.stat(path).st_blocks * 512


def space_of(ranges: Sequence[Range], block: int) -> int:
    """The bytes that a segment with only these ranges takes on disk."""
    count, last = 0, -1
    map_at = ranges[-1][1]
    map_end = map_at + _MAP.size + len(ranges) * _RANGE.size
    for start, end in ((0, HEAD_LENGTH), *ranges, (map_at, map_end)):
        first = max(start // block, last + 1)
        last = max(last, (end - 1) // block)
        count += last - first + 1 if last >= first else 0
    return count * block


def merge(frames: Iterable[Range]) -> list[Range]:
    """Frames in any order as ranges in order; neighbours are one."""
    ranges: list[Range] = []
    for start, end in sorted(frames):
        if ranges and ranges[-1][1] == start:
            ranges[-1] = ranges[-1][0], end
        else:
            ranges.append((start, end))
    return ranges


def thin_out(segment: Segment, next_lsn: int, ranges: Sequence[Range]) -> None:
    """Replaces a segment by a sparse file with only these ranges. Raises PSK-7004 if there is no room; the segment is unchanged then."""
    data = map_file(segment.file)
    map_at = ranges[-1][1]
    table = bytearray(_MAP.pack(0, len(ranges), segment.first_lsn, next_lsn))
    table += b"".join([_RANGE.pack(*r) for r in ranges])
    _CRC.pack_into(table, 0, google_crc32c.value(bytes(table[_CRC.size :])))
    head = pack_head(segment.number, segment.version + THIN, map_at)

    def write(out: BinaryIO) -> None:
        out.write(head)
        for start, end in ranges:
            out.seek(start)
            out.write(data.slice(start, end - start))
        out.write(table)

    write_durably(segment.path, write)


def read_map(path: Path, head: Head, data: pa.Buffer) -> Map:
    """The map of a thinned-out segment. It was durable before the file got its name, so a bad one is damage."""
    if head.map_at + _MAP.size <= data.size:
        table = data.slice(head.map_at).to_pybytes()
        crc, count, first_lsn, next_lsn = _MAP.unpack_from(table)
        if len(table) == _MAP.size + count * _RANGE.size and google_crc32c.value(table[_CRC.size :]) == crc:
            return Map(first_lsn, next_lsn, list(_RANGE.iter_unpack(table[_MAP.size :])))
    raise fail("PSK-6001", f"{path} is damaged at offset {head.map_at}: its map is not sound.")
