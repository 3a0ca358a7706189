"""The unit of appending: one object's part of a commit."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.log.state import Covered


@dataclass(frozen=True, slots=True)
class Part:
    """One object's part of a commit: rows (`batches`), or a marker without any.

    The batches have the first `column_count` columns (0: all) of the object's canonical Arrow schema. `watermark` (Unix ms) is the object's watermark
    after this part; it never lowers the current one. `job_epoch` is Spark's batch id for the output of a job, otherwise -1.
    `input_lsn` is the commit that caused this part; None means its own commit. An `idle` object holds back no watermark until its
    next part. `before` has, for each batch, the watermark in force for its rows; it is empty if that is the object's own. `covers` is what the
    epoch of a job has read.
    """

    object_id: int
    batches: tuple[pa.RecordBatch, ...] = ()
    watermark: int | None = None
    job_epoch: int = -1
    column_count: int = 0
    input_lsn: int | None = None
    idle: bool = False
    before: tuple[int, ...] = ()
    covers: Covered | None = None
