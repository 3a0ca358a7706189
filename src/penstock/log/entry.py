"""The location of a part in the log."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One part as readers see it.

    `path` is absolute; `offset` and `length` locate the payload in it. `batches` holds (offset, length, rows) of each
    record-batch message, with offsets from the start of the file. `watermark` is the object's watermark after this part, `epoch` counts
    the object's entries from 1, `time_ms` is the wall clock of the commit. `input_lsn` is the commit that caused this one: the commit itself
    or, for the output of a query, the last commit of its input. `idle` and `before` (empty, or one number per message) are those of the part.
    `checks` has the CRC32C of each message; it is empty if the format of the segment has none.
    """

    lsn: int
    object_id: int
    path: str
    offset: int
    length: int
    rows: int
    batches: tuple[tuple[int, int, int], ...]
    watermark: int | None
    epoch: int
    job_epoch: int
    time_ms: int
    column_count: int
    input_lsn: int
    idle: bool = False
    before: tuple[int, ...] = ()
    checks: tuple[int, ...] = ()
