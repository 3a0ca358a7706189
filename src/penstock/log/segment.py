"""A segment file: its head, and the one that is being written."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import pyarrow as pa

from penstock.disk import datasync, reserve, write_all, write_durably
from penstock.errors import PenstockError, fail
from penstock.log.carry import Carry, pack_carries, unpack_carries
from penstock.log.frame import FORMAT

_MAGIC = b"PSKs"
# magic, crc, format of the frames, length of the head | number, first lsn
_HEAD = struct.Struct("<4sIII QQ")
HEAD_LENGTH = _HEAD.size
_CRC = struct.Struct("<I")
_CRC_END = 8
_NAME = re.compile(r"(\d{8,})\.seg")
_MIN_RESERVE = 1 << 20
_MAX_RESERVE = 16 << 20

THIN = 256
"""Added to the format of a segment that was thinned out: see `penstock.log.thin`."""


@dataclass(slots=True, eq=False)
class Segment:
    """A segment, the space that it takes on disk, and how many of its entries are still needed.

    `size` is settled when the segment is not written any more. A thinned-out segment has frames
    of the objects in `holds` only. `before` is the number of needed entries at the last trim, `judged` the number when the segment
    was last considered for thinning out.
    """

    number: int
    path: Path
    first_lsn: int
    size: int
    version: int = FORMAT
    disk_bytes: int = 0
    needed: int = 0
    holds: frozenset[int] | None = None
    before: int = -1
    judged: int = -1
    file: str = field(init=False)

    def __post_init__(self) -> None:
        self.file = str(self.path)
        self.disk_bytes = self.disk_bytes or self.size

    def may_hold(self, object_id: int, up_to: int) -> bool:
        """Whether this segment can have frames of an object whose last commit is at or before an LSN."""
        return self.first_lsn <= up_to if self.holds is None else object_id in self.holds


class Head(NamedTuple):
    """The head of a segment: where its frames begin, or for one that was thinned out, where the map of them is."""

    version: int
    thin: bool
    length: int
    first_lsn: int
    carries: dict[int, Carry]
    map_at: int


def segment_path(folder: Path, number: int) -> Path:
    return folder / f"{number:08d}.seg"


def list_segments(folder: Path) -> list[tuple[int, Path]]:
    """The numbers and paths of the segments in a folder, in order."""
    found = ((_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in found if match)


def create_segment(folder: Path, number: int, first_lsn: int, carries: dict[int, Carry]) -> Segment:
    """Makes a segment durable, with a head that carries what is known of every object, so that older ones can be deleted."""
    head = pack_head(number, FORMAT, first_lsn, pack_carries(carries))
    path = segment_path(folder, number)
    try:
        write_durably(path, head)
    except PenstockError:
        # Commits go on in the segment before, which a newer one would contradict.
        path.unlink(missing_ok=True)
        raise
    return Segment(number, path, first_lsn, len(head))


def pack_head(number: int, version: int, place: int, rest: bytes = b"") -> bytes:
    """The head of a segment. `place` is its first LSN, or the offset of the map of one that was thinned out."""
    head = bytearray(_HEAD.pack(_MAGIC, 0, version, _HEAD.size + len(rest), number, place) + rest)
    _CRC.pack_into(head, 4, google_crc32c.value(bytes(head[_CRC_END:])))
    return bytes(head)


def read_head(path: Path, number: int, data: pa.Buffer) -> Head:
    """The head of a segment.

    A segment gets its name only when its head is durable, so a bad head is damage and never a torn write.
    """
    if data.size >= _HEAD.size:
        magic, crc, version, length, stored_number, place = _HEAD.unpack_from(data)
        if magic == _MAGIC and _HEAD.size <= length <= data.size:
            head = data.slice(0, length).to_pybytes()
            if google_crc32c.value(head[_CRC_END:]) == crc and stored_number == number:
                thin, version = version & THIN != 0, version & ~THIN
                if version > FORMAT:
                    raise fail("PSK-6002", f"{path} has format {version}; this version reads up to {FORMAT}.")
                if thin:
                    return Head(version, True, length, 0, {}, place)
                return Head(version, False, length, place, unpack_carries(head[_HEAD.size :], version), 0)
    raise fail("PSK-6001", f"{path} is damaged at offset 0: its head is not sound.")


class SegmentWriter:
    """The segment at the end of the log, open for writing. `end` is where the next frame goes."""

    def __init__(self, segment: Segment, end: int) -> None:
        self.segment = segment
        self.end = end
        self._fd = os.open(segment.path, os.O_RDWR | os.O_CLOEXEC)
        self._reserved = end

    def write(self, buffers: Sequence[bytes | pa.Buffer], length: int) -> None:
        """Writes past the end without moving it: `accept` or `withdraw` follows."""
        if self.end + length > self._reserved:
            extra = max(length, min(max(self.end, _MIN_RESERVE), _MAX_RESERVE))
            if reserve(self._fd, self.end, extra):
                self._reserved = self.end + extra
        write_all(self._fd, buffers, self.end)

    def rewrite(self, buffers: Sequence[bytes | pa.Buffer], offset: int) -> None:
        """Writes once more what is part of the log."""
        write_all(self._fd, buffers, offset)

    def sync(self) -> None:
        datasync(self._fd)

    def accept(self, length: int) -> None:
        """What was written is part of the log."""
        self.end += length
        self.segment.size = self.end
        self.segment.disk_bytes = max(self.end, self._reserved)

    def withdraw(self) -> None:
        """Removes, durably, whatever was written past the end."""
        os.ftruncate(self._fd, self.end)
        self._reserved = self.segment.disk_bytes = self.end
        os.fsync(self._fd)

    def close(self) -> None:
        """Gives reserved space back and closes the file. What was written must have been synced."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self.segment.disk_bytes = self.end
            try:
                os.ftruncate(fd, self.end)
            finally:
                os.close(fd)
