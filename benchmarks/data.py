"""The rows: the same for every competitor, in every round and on every machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

BATCH = 100_000
# In the past, so that no row is taken for one from the future.
START_MS = 1_700_000_000_000
TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema({"k": pa.int64(), "v": pa.int64(), "ts": TIME})


@dataclass(frozen=True)
class Shape:
    """`rows` rows (k, v, ts) in batches of `batch`; k is below `keys`, v below 1,000, ts grows by 1 ms every `per_ms` rows."""

    rows: int
    keys: int = 100
    per_ms: int = 100
    batch: int = BATCH

    @property
    def count(self) -> int:
        return -(-self.rows // self.batch)

    def columns(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """k, v and ts (epoch milliseconds) of one batch."""
        first = number * self.batch
        size = min(self.batch, self.rows - first)
        random = np.random.default_rng(number)
        keys = random.integers(0, self.keys, size)
        values = random.integers(0, 1_000, size)
        return keys, values, START_MS + np.arange(first, first + size) // self.per_ms

    def batches(self) -> Iterator[pa.RecordBatch]:
        for number in range(self.count):
            yield record_batch(*self.columns(number))

    def last(self) -> pa.RecordBatch:
        """One row so much later than all others that every window before it closes."""
        return late_row(START_MS + self.rows // self.per_ms + 10_000)


def record_batch(keys: np.ndarray, values: np.ndarray, millis: np.ndarray) -> pa.RecordBatch:
    times = pa.array(millis * 1_000, pa.int64()).cast(TIME)
    return pa.record_batch({"k": pa.array(keys, pa.int64()), "v": pa.array(values, pa.int64()), "ts": times})


def late_row(millis: int) -> pa.RecordBatch:
    return record_batch(np.array([0]), np.array([0]), np.array([millis]))


def millis(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows with `ts` as epoch milliseconds."""
    times = pa.array(batch.column("ts").cast(pa.int64()).to_numpy() // 1_000)
    return pa.record_batch({"k": batch.column("k"), "v": batch.column("v"), "ts": times})
