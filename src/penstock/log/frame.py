"""The header of a frame, as bytes.

A frame is one object's part of one commit. Its header is a fixed struct, then a table of (offset, length, rows) for each
record-batch message, then, if there are any, the watermarks that were in force for each of them, then for an external file its length and path; zeros fill
it up to a multiple of eight. The payload follows.
The header's CRC32C covers everything after the CRC field; the payload has its own.

The format is that of the segment. Format 1 has no `input_lsn`, `since`, `idle` and `before`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import google_crc32c
import pyarrow as pa

from penstock.log.carry import NO_WATERMARK

FORMAT = 2
MAGIC = b"PSKf"
_COMMIT = 1
_EXTERNAL = 2
_IDLE = 4
_BEFORE = 8

# magic, crc, header length, flags | lsn, durable lsn, payload length | payload crc, object id
# | rows, watermark, epoch, job epoch, time | schema version, number of batches | input lsn, since
_FIXED = {1: struct.Struct("<4sIII QQQ II QqQqq II"), 2: struct.Struct("<4sIII QQQ II QqQqq II QQ")}
# The latest format without the magic and the CRC.
_CHECKED = struct.Struct("<II QQQ II QqQqq II QQ")
_START = struct.Struct("<4sII")
_BATCH = struct.Struct("<QQQ")
_WATERMARK = struct.Struct("<q")
_EXTERNAL_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_CRC_END = 8


class Frame(NamedTuple):
    """The content of a header.

    `durable_lsn` is the last commit that was known to be on disk when this frame was written: damage to a commit at or before
    it cannot be a torn write. `last` marks the last frame of its commit. The object's epochs from `since` up to this one had no rows.
    Offsets in `batches` count from the start of the payload, or of the external file.
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
    schema_version: int
    input_lsn: int
    since: int
    payload_length: int
    payload_crc: int
    batches: tuple[tuple[int, int, int], ...]
    external_path: str | None = None
    external_length: int = 0
    idle: bool = False
    before: tuple[int, ...] = ()


def pack(frame: Frame) -> bytes:
    """The header of a frame; its length is a multiple of eight."""
    tail = _BATCH.pack(*frame.batches[0]) if len(frame.batches) == 1 else _table(frame.batches)
    flags = (_COMMIT if frame.last else 0) | (_IDLE if frame.idle else 0)
    if frame.before:
        flags |= _BEFORE
        tail += b"".join([_WATERMARK.pack(watermark) for watermark in frame.before])
    if frame.external_path is not None:
        flags |= _EXTERNAL
        tail += _EXTERNAL_LENGTH.pack(frame.external_length) + frame.external_path.encode()
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
        frame.schema_version,
        len(frame.batches),
        frame.input_lsn,
        frame.since,
    )
    checked += tail
    if padding:
        checked += bytes(padding)
    return MAGIC + _CRC.pack(google_crc32c.value(checked)) + checked


def _table(batches: tuple[tuple[int, int, int], ...]) -> bytes:
    return b"".join([_BATCH.pack(*batch) for batch in batches])


def header_length(batches: int, version: int, *, before: int = 0, external_path: str | None = None) -> int:
    """How long the header of a frame with so many batches, and watermarks before them, is."""
    length = _FIXED[version].size + batches * _BATCH.size + before * _WATERMARK.size
    if external_path is not None:
        length += _EXTERNAL_LENGTH.size + len(external_path.encode())
    return length + -length % 8


def header_at(data: pa.Buffer, position: int, version: int) -> tuple[int, Frame] | None:
    """The header that begins here, and where its payload does; None if no sound header begins here."""
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
        schema_version,
        count,
        *later,
    ) = fixed.unpack_from(data, position)
    # An older format does not say when the last rows came.
    input_lsn, since = later or (lsn, epoch)
    at = position + fixed.size
    path, external_length = None, 0
    before: tuple[int, ...] = ()
    if count == 1:
        batches: tuple[tuple[int, int, int], ...] = (_BATCH.unpack_from(data, at),)
    else:
        batches = tuple([_BATCH.unpack_from(data, at + i * _BATCH.size) for i in range(count)])
    at += count * _BATCH.size
    if flags & _BEFORE:
        before = tuple([_WATERMARK.unpack_from(data, at + i * _WATERMARK.size)[0] for i in range(count)])
        at += count * _WATERMARK.size
    if flags & _EXTERNAL:
        (external_length,) = _EXTERNAL_LENGTH.unpack_from(data, at)
        at += _EXTERNAL_LENGTH.size
        path = data.slice(at, position + length - at).to_pybytes().rstrip(b"\0").decode()
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
        schema_version,
        input_lsn,
        since,
        payload_length,
        payload_crc,
        batches,
        path,
        external_length,
        bool(flags & _IDLE),
        before,
    )
