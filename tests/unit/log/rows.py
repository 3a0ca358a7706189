"""Rows and parts for the tests of the log."""

from __future__ import annotations

import pyarrow as pa

from penstock.log import Part

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


def batch(*keys: int, width: int = 0) -> pa.RecordBatch:
    return pa.record_batch([list(keys), [f"value {k}".ljust(width) for k in keys]], schema=SCHEMA)


def part(
    object_id: int,
    *keys: int,
    watermark: int | None = None,
    job_epoch: int = -1,
    input_lsn: int | None = None,
    width: int = 0,
    before: int = 0,
) -> Part:
    """A part with these keys, whose values have at least a width."""
    batches = (batch(*keys, width=width),) if keys else ()
    marks = (before,) if before and keys else ()
    return Part(object_id, batches, watermark, job_epoch, input_lsn=input_lsn, before=marks)
