"""A segment file: its head, and the one that is being written."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import pyarrow as pa

from penstock.errors import fail
from penstock.log.carry import Carry, pack_carries, unpack_carries
from penstock.log.disk import datasync, replace_file, reserve, write_all

_MAGIC = b"PSKs"
_VERSION = 1
# magic, crc, version, length of the head | number, first lsn
_HEAD = struct.Struct("<4sIII QQ")
_CRC = struct.Struct("<I")
_CRC_END = 8
_NAME = re.compile(r"(\d{8,})\.seg")
_MIN_RESERVE = 1 << 20
_MAX_RESERVE = 16 << 20


@dataclass(slots=True)
class Segment:
    """A segment and how many of its entries are still needed. `size` is settled when the segment is not written any more."""

    number: int
    path: Path
    first_lsn: int
    size: int
    needed: int = 0


def segment_path(folder: Path, number: int) -> Path:
    return folder / f"{number:08d}.seg"


def list_segments(folder: Path) -> list[tuple[int, Path]]:
    """The numbers and paths of the segments in a folder, in order."""
    found = ((_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in found if match)


def create_segment(folder: Path, number: int, first_lsn: int, carries: dict[int, Carry]) -> Segment:
    """Makes a segment durable, with a head that carries what is known of every object, so that older ones can be deleted."""
    records = pack_carries(carries)
    head = bytearray(_HEAD.pack(_MAGIC, 0, _VERSION, _HEAD.size + len(records), number, first_lsn) + records)
    _CRC.pack_into(head, 4, google_crc32c.value(bytes(head[_CRC_END:])))
    path = segment_path(folder, number)
    try:
        replace_file(path, bytes(head))
    except OSError:
        # Commits go on in the segment before, which a newer one would contradict.
        path.unlink(missing_ok=True)
        raise
    return Segment(number, path, first_lsn, len(head))


def read_head(path: Path, number: int, data: pa.Buffer) -> tuple[int, int, dict[int, Carry]]:
    """The first LSN of a segment, where its frames begin, and the carried states.

    A segment gets its name only when its head is durable, so a bad head is damage and never a torn write.
    """
    if data.size >= _HEAD.size:
        magic, crc, version, length, stored_number, first_lsn = _HEAD.unpack_from(data)
        if magic == _MAGIC and _HEAD.size <= length <= data.size:
            head = data.slice(0, length).to_pybytes()
            if google_crc32c.value(head[_CRC_END:]) == crc and stored_number == number:
                if version > _VERSION:
                    raise fail("PSK-6002", f"{path} has format {version}; this version reads up to {_VERSION}.")
                return first_lsn, length, unpack_carries(head[_HEAD.size :])
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

    def sync(self) -> None:
        datasync(self._fd)

    def accept(self, length: int) -> None:
        """What was written is part of the log."""
        self.end += length
        self.segment.size = self.end

    def withdraw(self) -> None:
        """Removes, durably, whatever was written past the end."""
        os.ftruncate(self._fd, self.end)
        self._reserved = self.end
        os.fsync(self._fd)

    def close(self) -> None:
        """Gives reserved space back and closes the file. What was written must have been synced."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                os.ftruncate(fd, self.end)
            finally:
                os.close(fd)
