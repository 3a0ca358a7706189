"""Reading a segment back when the log is opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import google_crc32c
import pyarrow as pa

from penstock.errors import fail
from penstock.log import frame
from penstock.log.carry import Carry
from penstock.log.frame import Frame
from penstock.log.maps import map_file
from penstock.log.segment import read_head


@dataclass(slots=True)
class Scan:
    """The sound content of a segment: its frames with the offsets of their payloads, and where the last commit ends."""

    first_lsn: int
    next_lsn: int
    end: int
    size: int
    carries: dict[int, Carry]
    frames: list[tuple[int, Frame]] = field(default_factory=list)


def scan_segment(path: Path, number: int, *, last: bool) -> Scan:
    """Reads the headers of a segment.

    In the last segment payloads are verified as well, and an unfinished tail is left out of the result. Anything else that is
    not sound is damage: PSK-6001 with the file and the offset.
    """
    data = map_file(str(path))
    first_lsn, position, carries = read_head(path, number, data)
    scan = Scan(first_lsn, first_lsn, position, data.size, carries)
    commit: list[tuple[int, Frame]] = []
    while (found := _frame_at(data, position, scan.next_lsn, verify=last)) is not None:
        payload, header = found
        commit.append(found)
        position = payload + header.payload_length
        if header.last:
            scan.frames += commit
            commit = []
            scan.next_lsn += 1
            scan.end = position
    clean = not commit and _is_zero(data, position)
    if not clean and (not last or _was_durable(data, scan.end, scan.next_lsn)):
        raise fail("PSK-6001", f"{path} is damaged at offset {position}: commit {scan.next_lsn} is not sound.")
    return scan


def _frame_at(data: pa.Buffer, position: int, lsn: int, *, verify: bool) -> tuple[int, Frame] | None:
    header = _header_at(data, position)
    if header is None or header[1].lsn != lsn:
        return None
    start, found = header
    if start + found.payload_length > data.size:
        return None
    if verify and found.payload_length:
        payload = data.slice(start, found.payload_length)
        if google_crc32c.value(payload) != found.payload_crc:
            return None
    return start, found


def _header_at(data: pa.Buffer, position: int) -> tuple[int, Frame] | None:
    if position + frame.MIN_LENGTH > data.size:
        return None
    length = frame.header_length(data.slice(position, frame.MIN_LENGTH).to_pybytes())
    if length is None or position + length > data.size:
        return None
    found = frame.unpack(data.slice(position, length).to_pybytes())
    return None if found is None else (position + length, found)


def _is_zero(data: pa.Buffer, position: int) -> bool:
    """Whether there is nothing but reserved space from here on."""
    return position >= data.size or not data.slice(position).to_pybytes().strip(b"\0")


def _was_durable(data: pa.Buffer, position: int, lsn: int) -> bool:
    """Whether a later frame bears witness that this commit was on disk before: then it is damaged, not torn."""
    rest = data.slice(position).to_pybytes()
    at = rest.find(frame.MAGIC)
    while at >= 0:
        header = _header_at(data, position + at)
        if header is not None and header[1].durable_lsn >= lsn:
            return True
        at = rest.find(frame.MAGIC, at + 1)
    return False
