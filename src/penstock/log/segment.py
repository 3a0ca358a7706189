"""Segment files: their head, and the writer of the last one."""

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

from penstock.disk import datasync, reserve, sync_folder, unwritable, write_all, write_durably
from penstock.errors import PenstockError, fail
from penstock.log.frame import FORMAT
from penstock.log.state import ObjectState, pack_states, unpack_states

_MAGIC = b"PSKs"
_CUT = b"PSKx"
_GRAVE = ".buried"
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
    """A segment, its size on disk, and the number of its entries that are still needed.

    `size` is final once the segment is no longer written. A thinned-out segment has only frames of the objects in `holds`. `before` is
    the number of needed entries at the last trim, `judged` the number when the segment was last considered for thinning out.
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
        """Whether this segment can contain frames of an object whose last commit is at or before an LSN."""
        return self.first_lsn <= up_to if self.holds is None else object_id in self.holds


class Head(NamedTuple):
    """The head of a segment: the offset of its frames or, if it was thinned out, of its map."""

    version: int
    thin: bool
    length: int
    first_lsn: int
    states: dict[int, ObjectState]
    map_at: int


def segment_path(folder: Path, number: int) -> Path:
    return folder / f"{number:08d}.seg"


def list_segments(folder: Path) -> list[tuple[int, Path]]:
    """The numbers and paths of the segments in a folder, in order."""
    found = ((_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in found if match)


def create_segment(folder: Path, number: int, first_lsn: int, states: dict[int, ObjectState]) -> Segment:
    """Durably creates a segment. Its head has the state of every object, so that older segments can be deleted."""
    head = pack_head(number, FORMAT, first_lsn, pack_states(states))
    path = segment_path(folder, number)
    try:
        write_durably(path, head)
    except PenstockError:
        # Commits continue in the previous segment, which a newer one would contradict.
        path.unlink(missing_ok=True)
        raise
    return Segment(number, path, first_lsn, len(head))


def bury(segments: Sequence[Segment]) -> None:
    """Removes the oldest segments when a full disk keeps this from being written down: an empty file, which takes no space, attests it.

    Mappings of them stay valid.
    """
    last = segments[-1].path
    try:
        os.close(os.open(grave(last), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        sync_folder(last.parent)
        for segment in segments:
            segment.path.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(last, error) from error


def grave(path: Path) -> Path:
    """The file that attests that a segment was buried, and all older ones."""
    return path.with_suffix(_GRAVE)


def graves(folder: Path) -> list[tuple[int, Path]]:
    """The numbers of the segments that were buried last, and the files that attest it. An earlier version cut the segments themselves."""
    cut = [(number, path) for number, path in list_segments(folder) if _was_cut(path)]
    return cut + [(int(path.stem), path) for path in folder.glob(f"*{_GRAVE}")]


def _was_cut(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_CUT)) == _CUT


def pack_head(number: int, version: int, place: int, rest: bytes = b"") -> bytes:
    """Serialises the head of a segment. `place` is its first LSN or, if it was thinned out, the offset of its map."""
    head = bytearray(_HEAD.pack(_MAGIC, 0, version, _HEAD.size + len(rest), number, place) + rest)
    _CRC.pack_into(head, 4, google_crc32c.value(bytes(head[_CRC_END:])))
    return bytes(head)


def read_head(path: Path, number: int, data: pa.Buffer) -> Head:
    """Reads the head of a segment.

    A segment gets its name only once its head is durable, so a bad head is damage and never a torn write.
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
                return Head(version, False, length, place, unpack_states(head[_HEAD.size :], version), 0)
    raise fail("PSK-6001", f"{path} is damaged at offset 0: its head is not valid.")


class SegmentWriter:
    """The last segment of the log, open for writing. `end` is the offset of the next frame."""

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
        """Rewrites data that is already part of the log."""
        write_all(self._fd, buffers, offset)

    def sync(self) -> None:
        datasync(self._fd)

    def accept(self, length: int) -> None:
        """Makes the written data part of the log."""
        self.end += length
        self.segment.size = self.end
        self.segment.disk_bytes = max(self.end, self._reserved)

    def withdraw(self) -> None:
        """Durably removes everything written past the end."""
        os.ftruncate(self._fd, self.end)
        self._reserved = self.segment.disk_bytes = self.end
        os.fsync(self._fd)

    def close(self) -> None:
        """Releases reserved space and closes the file. All data must have been synced."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self.segment.disk_bytes = self.end
            try:
                os.ftruncate(fd, self.end)
            finally:
                os.close(fd)
