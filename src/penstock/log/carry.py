"""What the log knows of an object beyond its entries."""

from __future__ import annotations

import struct
from typing import NamedTuple

NO_WATERMARK = -(2**63)
_RECORD = struct.Struct("<QqQqQ")
_FIRST_RECORD = struct.Struct("<QqQq")


class Carry(NamedTuple):
    """The state of an object after its last part. It outlives the entries: every segment begins with all of them.

    `row_epoch` is the last epoch that had rows.
    """

    watermark: int | None = None
    epoch: int = 0
    job_epoch: int = -1
    row_epoch: int = 0

    def after(self, watermark: int | None, job_epoch: int, rows: int) -> Carry:
        """The state after one more part: the watermark never falls, and a part outside any job keeps the job epoch."""
        if watermark is None or (self.watermark is not None and self.watermark > watermark):
            watermark = self.watermark
        epoch = self.epoch + 1
        return Carry(
            watermark, epoch, job_epoch if job_epoch >= 0 else self.job_epoch, epoch if rows else self.row_epoch
        )


def pack_carries(carries: dict[int, Carry]) -> bytes:
    return b"".join(
        _RECORD.pack(i, NO_WATERMARK if c.watermark is None else c.watermark, c.epoch, c.job_epoch, c.row_epoch)
        for i, c in sorted(carries.items())
    )


def unpack_carries(data: bytes, version: int) -> dict[int, Carry]:
    if version == 1:
        # It does not say which epoch was the last with rows; it may have been the last of all.
        records = [(*record, record[2]) for record in _FIRST_RECORD.iter_unpack(data)]
    else:
        records = list(_RECORD.iter_unpack(data))
    return {
        i: Carry(None if wm == NO_WATERMARK else wm, epoch, job_epoch, row_epoch)
        for i, wm, epoch, job_epoch, row_epoch in records
    }
