"""The header of a frame, as bytes.

A frame is one object's part of one commit. Its header is a fixed struct, then a table of (offset, length, rows) for each
record-batch message, then for an external file its length and path; zeros fill it up to a multiple of eight. The payload follows.
The header's CRC32C covers everything after the CRC field; the payload has its own.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import google_crc32c

from penstock.log.carry import NO_WATERMARK

MAGIC = b"PSKf"
_COMMIT = 1
_EXTERNAL = 2

# magic, crc, header length, flags | lsn, durable lsn, payload length | payload crc, object id
# | rows, watermark, epoch, job epoch, time | schema version, number of batches
_FIXED = struct.Struct("<4sIII QQQ II QqQqq II")
_BATCH = struct.Struct("<QQQ")
_EXTERNAL_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_CRC_END = 8
MIN_LENGTH = _FIXED.size


class Frame(NamedTuple):
    """The content of a header.

    `durable_lsn` is the last commit that was known to be on disk when this frame was written: damage to a commit at or before
    it cannot be a torn write. `last` marks the last frame of its commit. Offsets in `batches` count from the start of the
    payload, or of the external file.
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
    payload_length: int
    payload_crc: int
    batches: tuple[tuple[int, int, int], ...]
    external_path: str | None = None
    external_length: int = 0


def pack(frame: Frame) -> bytes:
    """The header of a frame; its length is a multiple of eight."""
    tail = b"".join([_BATCH.pack(*batch) for batch in frame.batches])
    flags = _COMMIT if frame.last else 0
    if frame.external_path is not None:
        flags |= _EXTERNAL
        tail += _EXTERNAL_LENGTH.pack(frame.external_length) + frame.external_path.encode()
    length = _FIXED.size + len(tail)
    padding = -length % 8
    header = bytearray(
        _FIXED.pack(
            MAGIC,
            0,
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
        )
        + tail
        + bytes(padding)
    )
    _CRC.pack_into(header, 4, google_crc32c.value(bytes(header[_CRC_END:])))
    return bytes(header)


def unpack(data: bytes) -> Frame | None:
    """The frame whose header is exactly `data`, or None if it is not a sound header."""
    (
        magic,
        crc,
        length,
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
    ) = _FIXED.unpack_from(data)
    if magic != MAGIC or length != len(data) or google_crc32c.value(data[_CRC_END:]) != crc:
        return None
    end = _FIXED.size + count * _BATCH.size
    batches = tuple(_BATCH.iter_unpack(data[_FIXED.size : end]))
    path, external_length = None, 0
    if flags & _EXTERNAL:
        (external_length,) = _EXTERNAL_LENGTH.unpack_from(data, end)
        path = data[end + _EXTERNAL_LENGTH.size :].rstrip(b"\0").decode()
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
        payload_length,
        payload_crc,
        batches,
        path,
        external_length,
    )


def header_length(data: bytes) -> int | None:
    """The length that a fixed header claims, or None if these bytes do not begin a frame."""
    if len(data) < _FIXED.size or data[:4] != MAGIC:
        return None
    (length,) = _CRC.unpack_from(data, 8)
    return length if length >= _FIXED.size and length % 8 == 0 else None
