"""A producer that is faster than the engine, and how much memory and disk that takes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa

from penstock import Database, PenstockError
from penstock.spark import session

MEBIBYTE = 1 << 20
BATCH = 20_000
KEYS = 1000
LOG_BYTES = 24 * MEBIBYTE
CONFIG = {
    "log.segment_bytes": MEBIBYTE,
    "log.retain_bytes": 2 * MEBIBYTE,
    "log.max_bytes": LOG_BYTES,
    "checkpoint.interval_ms": 1000,
}
SCRIPT = """
CREATE SOURCE flood (k BIGINT, v BIGINT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
  WITH (max_pending_rows = 200000, on_full = 'reject');
CREATE MATERIALIZED VIEW totals AS SELECT k, count(*) AS n, sum(v) AS total FROM flood GROUP BY k;
CREATE MATERIALIZED VIEW best AS SELECT k, max(v) AS most FROM flood GROUP BY k ORDER BY most DESC LIMIT 10;
"""


@dataclass
class Flooded:
    """What has happened: rows that were accepted, batches that were refused, and the largest of each size in bytes."""

    rows: int = 0
    refused: int = 0
    full: int = 0
    disk: int = 0
    pending: int = 0
    python: list[int] = field(default_factory=list)
    jvm: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        sizes = {"disk": self.disk, "Python": max(self.python, default=0), "JVM": max(self.jvm, default=0)}
        most = ", ".join(f"{name} {size // MEBIBYTE} MiB" for name, size in sizes.items())
        return f"{self.rows} rows, {self.refused} batches refused, {self.full} by a full log, {self.pending} rows pending; at most {most}"


def batches() -> Iterator[pa.RecordBatch]:
    n = 0
    while True:
        numbers = np.arange(n, n + BATCH)
        yield pa.record_batch({"k": numbers % KEYS, "v": numbers % 1_000_003, "ts": numbers // 100})
        n += BATCH


def on_disk(folder: Path) -> int:
    """Files with several names count once."""
    sizes = {}
    # Files and folders go while they are counted.
    for parent, _, files in os.walk(folder):
        for name in files:
            with suppress(FileNotFoundError):
                about = os.stat(f"{parent}/{name}")
                sizes[about.st_ino] = about.st_blocks * 512
    return sum(sizes.values())


def flood(db: Database, folder: Path, seconds: float) -> Flooded:
    """Offers rows without a pause; refused ones are offered again. Looks at the sizes once a second."""
    db.execute(SCRIPT)
    found = Flooded()
    source = db.source("flood")
    process = psutil.Process()
    jvm = session._spark._process
    java = psutil.Process(jvm.pid) if jvm is not None else None
    end, look = time.monotonic() + seconds, 0.0
    offered = batches()
    batch = next(offered)
    while time.monotonic() < end:
        try:
            db.insert("flood", batch)
            found.rows += BATCH
            batch = next(offered)
        except PenstockError as error:
            if error.code not in ("PSK-5020", "PSK-5013"):
                raise
            found.refused += error.code == "PSK-5020"
            found.full += error.code == "PSK-5013"
        found.pending = max(found.pending, source.pending)
        if time.monotonic() >= look:
            look = time.monotonic() + 1
            found.disk = max(found.disk, on_disk(folder))
            found.python.append(process.memory_info().rss)
            if java is not None:
                found.jvm.append(java.memory_info().rss)
    return found


def check(db: Database, found: Flooded) -> None:
    """The limits were kept, the producer was refused, and every accepted row was counted once."""
    assert found.refused, "the producer was not faster than the engine"
    assert found.pending <= 200_000 + BATCH
    # Checkpoints keep the segments that they were made with; two are retained, and one is being made.
    assert found.disk <= 4 * LOG_BYTES + 32 * MEBIBYTE, found.disk
    db.flush(300)
    ((rows,),) = db.sql("SELECT sum(n) FROM totals").fetchall()
    assert rows == found.rows
