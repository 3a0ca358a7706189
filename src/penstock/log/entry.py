"""Where a part of a commit is."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One part as the index knows it.

    `path` is absolute; `offset` and `length` frame the payload in it. `batches` holds (offset, length, rows) of each
    record-batch message, with offsets from the start of the file. `watermark` is the object's after this part, `epoch` counts
    the object's entries from 1, `time_ms` is the wall clock of the commit.
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
    schema_version: int
