"""A checkpoint and its bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import google_crc32c

from penstock.checkpoint.kinds import CheckpointErrorKind
from penstock.errors import PenstockError

V = TypeVar("V")

VERSION = 2

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_I64 = struct.Struct("<q")


@dataclass(frozen=True)
class StreamCheckpoint:
    """The state of a pipeline at one moment. `id` grows; `created_at` is Unix milliseconds.

    `source_sequences` and `sink_positions` are u64, `watermarks` i64; `operator_states` are opaque.
    """

    id: int
    epoch: int
    source_sequences: Mapping[str, int] = field(default_factory=dict)
    sink_positions: Mapping[str, int] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)
    operator_states: Mapping[str, bytes] = field(default_factory=dict)
    created_at: int = 0

    def to_bytes(self) -> bytes:
        """Format 2, little-endian. Equal checkpoints have equal bytes: each part is in the order of its names.

            version: u8 = 2, id: u64, epoch: u64, created_at: u64
            count: u32, then per source     length: u32, name, sequence: u64
            count: u32, then per sink       length: u32, name, position: u64
            count: u32, then per watermark  length: u32, name, watermark: i64
            count: u32, then per operator   length: u32, name, length: u32, state
            crc32c: u32 of everything after the version

        Raises PSK-6016 for a number or a length that does not fit its field, and for a name that UTF-8 does not have.
        """
        out = bytearray()
        for what in ("id", "epoch", "created_at"):
            out += _packed(_U64, getattr(self, what), what)
        _write(out, self.source_sequences, lambda n, v: _packed(_U64, v, f"sequence of {n}"))
        _write(out, self.sink_positions, lambda n, v: _packed(_U64, v, f"position of {n}"))
        _write(out, self.watermarks, lambda n, v: _packed(_I64, v, f"watermark of {n}"))
        _write(out, self.operator_states, lambda n, v: _packed(_U32, len(v), f"state of {n}") + v)
        return bytes((VERSION,)) + bytes(out) + _U32.pack(google_crc32c.value(bytes(out)))

    @classmethod
    def from_bytes(cls, data: bytes) -> StreamCheckpoint:
        """Raises PSK-6016 if the data is truncated, corrupted, or not of version 2.

        CRC32C finds every flipped byte. A truncation that happens to have a valid checksum still ends before its last part.
        """
        if not data:
            raise _unreadable("empty checkpoint data")
        if data[0] != VERSION:
            raise _unreadable(f"unsupported checkpoint version: {data[0]} (expected {VERSION})")
        if len(data) < 1 + _U32.size:
            raise _unreadable("checkpoint too short for CRC")
        payload = bytes(data[1 : -_U32.size])
        (stored,) = _U32.unpack(data[-_U32.size :])
        computed = google_crc32c.value(payload)
        if stored != computed:
            raise _unreadable(f"CRC mismatch: stored={stored:#010x} computed={computed:#010x}")
        reader = _Reader(payload)
        id, epoch, created_at = (reader.number(_U64, "u64") for _ in range(3))
        made = cls(
            id,
            epoch,
            reader.part(lambda: reader.number(_U64, "u64")),
            reader.part(lambda: reader.number(_U64, "u64")),
            reader.part(lambda: reader.number(_I64, "i64")),
            reader.part(lambda: reader.sized("operator state")),
            created_at,
        )
        reader.end()
        return made


def _write(out: bytearray, part: Mapping[str, V], packed: Callable[[str, V], bytes]) -> None:
    out += _packed(_U32, len(part), "count")
    for name in sorted(part):
        try:
            text = name.encode()
        except UnicodeEncodeError:
            raise _unreadable(f"the name {name!r} is not text") from None
        out += _packed(_U32, len(text), "length of a name") + text + packed(name, part[name])


def _packed(layout: struct.Struct, value: int, what: str) -> bytes:
    try:
        return layout.pack(value)
    except struct.error:
        raise _unreadable(f"{what} is out of range: {value}") from None


def _unreadable(message: str) -> PenstockError:
    return CheckpointErrorKind.IO_ERROR.error(message)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self, layout: struct.Struct, what: str) -> int:
        value: int = layout.unpack(self._take(layout.size, what))[0]
        return value

    def sized(self, what: str) -> bytes:
        return self._take(self.number(_U32, "u32"), what)

    def part(self, value: Callable[[], V]) -> dict[str, V]:
        found: dict[str, V] = {}
        for _ in range(self.number(_U32, "u32")):
            try:
                name = self.sized("string").decode()
            except UnicodeDecodeError:
                raise _unreadable("invalid utf8") from None
            found[name] = value()
        return found

    def end(self) -> None:
        if self._position != len(self._data):
            raise _unreadable("bytes after the last operator state")

    def _take(self, length: int, what: str) -> bytes:
        end = self._position + length
        if end > len(self._data):
            raise _unreadable(f"truncated {what}")
        taken = self._data[self._position : end]
        self._position = end
        return taken
