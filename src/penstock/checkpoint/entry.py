"""One entry of the changelog: 24 bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from penstock.checkpoint.kinds import CheckpointErrorKind
from penstock.errors import fail

# source_id: u16, op: u8, padding: u8, reserved: u32, sequence: u64, watermark: i64; little-endian.
LAYOUT = struct.Struct("<HBBIQq")

NO_WATERMARK = -(2**63)
"""The watermark of a source that has none yet."""


class StreamChangeOp(IntEnum):
    """PUSH: a record was pushed. WATERMARK: a watermark was emitted. BARRIER: a checkpoint was taken."""

    PUSH = 0
    WATERMARK = 1
    BARRIER = 2


_KNOWN = frozenset(StreamChangeOp)


@dataclass(frozen=True, slots=True)
class StreamChangelogEntry:
    """What happened to a source, with its sequence and its watermark at that time. `source_id` comes from `SourceIds`."""

    source_id: int
    op: int
    sequence: int
    watermark: int = NO_WATERMARK

    @property
    def op_type(self) -> StreamChangeOp | None:
        """None if `op` is not an operation of this version."""
        return StreamChangeOp(self.op) if self.op in _KNOWN else None

    def pack_into(self, buffer: bytearray, offset: int) -> None:
        """Raises PSK-0009 for a number that does not fit its field."""
        try:
            LAYOUT.pack_into(buffer, offset, self.source_id, self.op, 0, 0, self.sequence, self.watermark)
        except struct.error as why:
            raise fail("PSK-0009", f"{self} does not fit in {LAYOUT.size} bytes: {why}.") from None

    def to_bytes(self) -> bytes:
        packed = bytearray(LAYOUT.size)
        self.pack_into(packed, 0)
        return bytes(packed)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray, offset: int = 0) -> StreamChangelogEntry:
        """Raises PSK-6016 if the data is truncated."""
        if len(data) - offset < LAYOUT.size:
            raise CheckpointErrorKind.IO_ERROR.error("truncated changelog entry")
        source_id, op, _, _, sequence, watermark = LAYOUT.unpack_from(data, offset)
        return cls(source_id, op, sequence, watermark)
