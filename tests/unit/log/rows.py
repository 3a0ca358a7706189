"""Rows and parts for the tests of the log."""

from __future__ import annotations

import pyarrow as pa

from penstock.log import Part

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


def batch(*keys: int) -> pa.RecordBatch:
    return pa.record_batch([list(keys), [f"value {k}" for k in keys]], schema=SCHEMA)


def part(object_id: int, *keys: int, watermark: int | None = None, job_epoch: int = -1) -> Part:
    return Part(object_id, (batch(*keys),) if keys else (), watermark, job_epoch)
