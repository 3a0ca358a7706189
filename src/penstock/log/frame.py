"""The header of a frame, as bytes.

A frame is one object's part of one commit. Its header is a fixed struct, then a table of (offset, length, rows, CRC32C) for each
record-batch message, then optionally the watermark in force for each of them; it is
zero-padded to a multiple of eight. The payload follows.
The header's CRC32C covers everything after the CRC field.

All frames of a segment have the segment's format. Format 1 has no `input_lsn`, `since`, `idle` and `before`. Format 2 has no range of a job's
epoch, and one CRC32C for the whole payload.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import google_crc32c
import pyarrow as pa

from penstock.log.state import NO_WATERMARK, NOTHING_COVERED, Covered

FORMAT = 3
MAGIC = b"PSKf"
_COMMIT = 1
_IDLE = 4
_BEFORE = 8

# magic, crc, header length, flags | lsn, durable lsn, payload length | payload crc, object id
# | rows, watermark, epoch, job epoch, time | column count, number of batches | input lsn, since | after, reach, watermark in force, beat
_FIXED = {
    1: struct.Struct("<4sIII QQQ II QqQqq II"),
    2: struct.Struct("<4sIII QQQ II QqQqq II QQ"),
    3: struct.Struct("<4sIII QQQ II QqQqq II QQ QQqQ"),
}
# The latest format without the magic and the CRC.
_CHECKED = struct.Struct("<II QQQ II QqQqq II QQ QQqQ")
_START = struct.Struct("<4sII")
# offset, length, rows, crc
_BATCH = struct.Struct("<QQII")
_UNCHECKED_BATCH = struct.Struct("<QQQ")
_WATERMARK = struct.Struct("<q")
_CRC = struct.Struct("<I")
_CRC_END = 8


class Frame(NamedTuple):
    """The content of a header.

    `durable_lsn` is the last commit known to be on disk when this frame was written: damage to a commit at or before
    it cannot be a torn write. `last` marks the last frame of its commit. The object's epochs from `since` up to this one had no rows.
    Offsets in `batches` are relative to the start of the payload; `checks` has the CRC32C of each message, if the
    format has them. `covers` is what the epoch of a job has read.
    """

    lsn: int
    durable_lsn: int
    object_id: int
    last: bool
    rows: int
    watermark: int | None
    epoch: int
    job_epoch: int
    time_ms: int
    column_count: int
    input_lsn: int
    since: int
    payload_length: int
    payload_crc: int
    batches: tuple[tuple[int, int, int], ...]
    idle: bool = False
    before: tuple[int, ...] = ()
    checks: tuple[int, ...] = ()
    covers: Covered = NOTHING_COVERED


def pack(frame: Frame) -> bytes:
    """Serialises a header; its length is a multiple of eight."""
    if len(frame.batches) == 1:
        tail = _BATCH.pack(*frame.batches[0], frame.checks[0] if frame.checks else 0)
    else:
        tail = _table(frame.batches, frame.checks)
    flags = (_COMMIT if frame.last else 0) | (_IDLE if frame.idle else 0)
    if frame.before:
        flags |= _BEFORE
        tail += b"".join([_WATERMARK.pack(watermark) for watermark in frame.before])
    length = _CRC_END + _CHECKED.size + len(tail)
    padding = -length % 8
    checked = _CHECKED.pack(
        length + padding,
        flags,
        frame.lsn,
        frame.durable_lsn,
        frame.payload_length,
        frame.payload_crc,
        frame.object_id,
        frame.rows,
        NO_WATERMARK if frame.watermark is None else frame.watermark,
        frame.epoch,
        frame.job_epoch,
        frame.time_ms,
        frame.column_count,
        len(frame.batches),
        frame.input_lsn,
        frame.since,
        *frame.covers,
    )
    checked += tail
    if padding:
        checked += bytes(padding)
    return MAGIC + _CRC.pack(google_crc32c.value(checked)) + checked


def _table(batches: tuple[tuple[int, int, int], ...], checks: tuple[int, ...]) -> bytes:
    return b"".join(
        [_BATCH.pack(*batch, crc) for batch, crc in zip(batches, checks or [0] * len(batches), strict=True)]
    )


def header_length(batches: int, version: int, *, before: int = 0) -> int:
    """The length of a header with this number of batches, and `before` watermarks."""
    length = _FIXED[version].size + batches * _BATCH.size + before * _WATERMARK.size
    return length + -length % 8


def header_at(data: pa.Buffer, position: int, version: int) -> tuple[int, Frame] | None:
    """The offset of the payload, and the header at a position; None if there is no valid header."""
    fixed = _FIXED[version]
    if position + fixed.size > data.size:
        return None
    magic, crc, length = _START.unpack_from(data, position)
    if magic != MAGIC or length < fixed.size or length % 8 or position + length > data.size:
        return None
    if google_crc32c.value(data.slice(position + _CRC_END, length - _CRC_END)) != crc:
        return None
    return position + length, _unpack(data, position, length, version)


def _unpack(data: pa.Buffer, position: int, length: int, version: int) -> Frame:
    fixed = _FIXED[version]
    (
        _,
        _,
        _,
        flags,
        lsn,
        durable_lsn,
        payload_length,
        payload_crc,
        object_id,
        rows,
        watermark,
        epoch,
        job_epoch,
        time_ms,
        column_count,
        count,
        *later,
    ) = fixed.unpack_from(data, position)
    # Format 1 does not store when the last rows came.
    input_lsn, since, *covered = later or (lsn, epoch)
    at = position + fixed.size
    before: tuple[int, ...] = ()
    batches: tuple[tuple[int, int, int], ...]
    checks: tuple[int, ...] = ()
    if version < 3:
        batches = tuple([_UNCHECKED_BATCH.unpack_from(data, at + i * _BATCH.size) for i in range(count)])
        if count == 1 and batches[0][:2] == (0, payload_length):
            checks = (payload_crc,)
    elif count == 1:
        *one, crc = _BATCH.unpack_from(data, at)
        batches, checks = (tuple(one),), (crc,)
    else:
        found = [_BATCH.unpack_from(data, at + i * _BATCH.size) for i in range(count)]
        batches, checks = tuple([f[:3] for f in found]), tuple([f[3] for f in found])
    at += count * _BATCH.size
    if flags & _BEFORE:
        before = tuple([_WATERMARK.unpack_from(data, at + i * _WATERMARK.size)[0] for i in range(count)])
        at += count * _WATERMARK.size
    return Frame(
        lsn,
        durable_lsn,
        object_id,
        bool(flags & _COMMIT),
        rows,
        None if watermark == NO_WATERMARK else watermark,
        epoch,
        job_epoch,
        time_ms,
        column_count,
        input_lsn,
        since,
        payload_length,
        payload_crc,
        batches,
        bool(flags & _IDLE),
        before,
        checks,
        Covered(*covered) if covered else NOTHING_COVERED,
    )


def is_whole(frame: Frame, payload: pa.Buffer) -> bool:
    """Whether a payload has the checksums of its header."""
    if not frame.payload_length:
        return True
    if payload.size < frame.payload_length:
        return False
    if not frame.checks:
        return bool(google_crc32c.value(payload.slice(0, frame.payload_length)) == frame.payload_crc)
    messages = zip(frame.batches, frame.checks, strict=True)
    return all(google_crc32c.value(payload.slice(at, size)) == crc for (at, size, _), crc in messages)
