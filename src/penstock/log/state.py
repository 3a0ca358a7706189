"""The state of an object in the log, beyond its entries."""

from __future__ import annotations

import struct
from typing import NamedTuple

NO_WATERMARK = -(2**63)
# object id, watermark, epoch, job epoch | last epoch with rows | after, reach, watermark in force, beat
_RECORDS = {1: struct.Struct("<QqQq"), 2: struct.Struct("<QqQq Q"), 3: struct.Struct("<QqQq Q QQqQ")}
_RECORD = _RECORDS[3]


class Covered(NamedTuple):
    """What an epoch of a job has read: the commits in (`after`, `reach`]. Epochs that reach equally far are told apart by the watermark that was in force, and
    then by the beat in their offsets."""

    after: int = 0
    reach: int = 0
    watermark: int = NO_WATERMARK
    beat: int = 0

    @property
    def position(self) -> tuple[int, int, int]:
        """By this the epochs of a job are ordered."""
        return self.reach, self.watermark, self.beat


NOTHING_COVERED = Covered()


class ObjectState(NamedTuple):
    """The state of an object after its last part. It outlives the entries: every segment begins with the states of all objects.

    `row_epoch` is the last epoch that had rows, `covers` the range of the last epoch of its job.
    """

    watermark: int | None = None
    epoch: int = 0
    job_epoch: int = -1
    row_epoch: int = 0
    covers: Covered = NOTHING_COVERED

    def after(self, watermark: int | None, job_epoch: int, rows: int, covers: Covered | None = None) -> ObjectState:
        """The state after one more part. The watermark never falls, and a part without a job keeps the job epoch and its range."""
        if watermark is None or (self.watermark is not None and self.watermark > watermark):
            watermark = self.watermark
        epoch = self.epoch + 1
        return ObjectState(
            watermark,
            epoch,
            job_epoch if job_epoch >= 0 else self.job_epoch,
            epoch if rows else self.row_epoch,
            covers or self.covers,
        )


def pack_states(states: dict[int, ObjectState]) -> bytes:
    return b"".join(
        _RECORD.pack(
            i, NO_WATERMARK if c.watermark is None else c.watermark, c.epoch, c.job_epoch, c.row_epoch, *c.covers
        )
        for i, c in sorted(states.items())
    )


def unpack_states(data: bytes, version: int) -> dict[int, ObjectState]:
    states = {}
    for i, wm, epoch, job_epoch, *later in _RECORDS[version].iter_unpack(data):
        # Format 1 does not store the last epoch with rows; assume that it was the last epoch.
        row_epoch, *covers = later or [epoch]
        states[i] = ObjectState(None if wm == NO_WATERMARK else wm, epoch, job_epoch, row_epoch, Covered(*covers))
    return states
