"""What is appended to the log: one object's part of a commit."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ExternalFile:
    """A finished file of record-batch messages that a commit takes over without copying it.

    `path` is relative to the database folder and uses `/`. `batches` holds (offset, length, rows) of each message in the file.
    """

    path: str
    length: int
    rows: int
    batches: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One object's part of a commit: rows inline (`batches`), rows in a file (`file`), or a marker with neither.

    The batches are in the object's canonical Arrow schema of `schema_version`. `watermark` (epoch ms) is the object's watermark
    after this part; it never lowers the one in force. `job_epoch` is Spark's batch id for the output of a job, otherwise -1.
    `input_lsn` is the commit that caused this part; None is the commit that it is in. An `idle` object holds back nobody's watermark until its
    next part. `before` has, for each batch, the watermark that was in force for its rows; it is empty where that is the object's own.
    """

    object_id: int
    batches: tuple[pa.RecordBatch, ...] = ()
    watermark: int | None = None
    job_epoch: int = -1
    file: ExternalFile | None = None
    schema_version: int = 0
    input_lsn: int | None = None
    idle: bool = False
    before: tuple[int, ...] = ()
