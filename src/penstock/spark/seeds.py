"""Files of record-batch messages that a job reads before, or in addition to, the log."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import google_crc32c
import pyarrow as pa

from penstock.log import Entry
from penstock.spark.bridge import Seed
from penstock.spark.compile import UNIT_OBJECT

_ROWS = 32_768


def write_seed(
    path: Path, object_id: int, lsn: int, schema: pa.Schema, pieces: Iterable[pa.Table], changelog: bool
) -> Seed:
    """Writes an object's contents, which need not fit in memory; each row has weight 1 if the object has weights."""

    def weighted(table: pa.Table) -> pa.Table:
        return table.append_column("__weight", pa.repeat(pa.scalar(1, pa.int64()), table.num_rows))

    batches, checks = _write(path, (weighted(p) if changelog else p for p in pieces))
    return Seed(object_id, lsn, len(schema) + changelog, str(path), batches, checks)


def unit_entry(path: Path) -> Entry:
    """The single row of the unit object, as an entry of the first commit of the log."""
    batches, checks = _write(path, [pa.table({"u": pa.array([1], pa.int64())})])
    return Entry(1, UNIT_OBJECT, str(path), 0, path.stat().st_size, 1, batches, None, 1, -1, 0, 1, 1, checks=checks)


def _write(path: Path, pieces: Iterable[pa.Table]) -> tuple[tuple[tuple[int, int, int], ...], tuple[int, ...]]:
    """Writes messages durably; returns offset, length and rows of each, and their checksums."""
    out, checks = [], []
    position = 0
    with path.open("wb") as f:
        for batch in (b for p in pieces for b in p.combine_chunks().to_batches(max_chunksize=_ROWS)):
            message = batch.serialize()
            f.write(message)
            out.append((position, message.size, batch.num_rows))
            checks.append(int(google_crc32c.value(message)))
            position += message.size
        f.flush()
        os.fsync(f.fileno())
    return tuple(out), tuple(checks)
