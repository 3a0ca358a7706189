"""What checkpoints cost: the window query with one every second beside the same without any, how long the newest takes, and how fast it is verified."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.data import Shape
from benchmarks.engines import penstock
from benchmarks.engines.query import stream
from benchmarks.work import PENSTOCK, AtMost, Figures, Row, Work
from benchmarks.works.window import SQL, all_rows

WARM_UP = 2
SMALL = 300
"""So many checkpoints of a small database."""


def with_penstock(quick: bool) -> Figures:
    import penstock as api

    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        with api.open(folder / "data", master=penstock.MASTER, config={"checkpoint.interval_ms": 0}) as db:
            found = _costs(db, quick)
            found |= _small(db, quick)
            found |= _verification(db, folder / "data")
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _costs(db: object, quick: bool) -> Figures:
    """Rounds with and without checkpoints, in turn."""
    rows = Shape(2_000_000 if quick else 10_000_000)
    batches = [*rows.batches(), rows.last()]
    rates: dict[int, list[float]] = {0: [], 1000: []}
    for n in range(WARM_UP + (3 if quick else 6)):
        for interval in rates if n % 2 else reversed(rates):
            db.execute(f"SET checkpoint.interval_ms = {interval}")  # type: ignore[attr-defined]
            query = penstock.PenstockQuery(db, f"w{n}_{interval}", SQL)  # type: ignore[arg-type]
            try:
                seconds = stream(query, batches, all_rows(rows.rows)())
            finally:
                query.close()
            if n >= WARM_UP:
                rates[interval].append(rows.rows / seconds)
    db.execute("SET checkpoint.interval_ms = 0")  # type: ignore[attr-defined]
    cost = 1 - float(np.median(rates[1000])) / float(np.median(rates[0]))
    return {"without": rates[0], "with": rates[1000], "cost": [100 * cost]}


def _small(db: object, quick: bool) -> Figures:
    """The time of a checkpoint after each of many small commits."""
    run = db.execute  # type: ignore[attr-defined]
    run("CREATE TABLE small (k BIGINT PRIMARY KEY, v BIGINT)")
    run("CREATE MATERIALIZED VIEW sums AS SELECT v % 10 AS d, count(*) AS n FROM small GROUP BY v % 10")
    took = []
    for n in range(SMALL // (10 if quick else 1)):
        db.insert("small", [(n, n)])  # type: ignore[attr-defined]
        db.flush()  # type: ignore[attr-defined]
        began = time.perf_counter()
        db.checkpoint()  # type: ignore[attr-defined]
        took.append(1000 * (time.perf_counter() - began))
    return {"p50": [float(np.percentile(took, 50))], "p99": [float(np.percentile(took, 99))]}


def _verification(db: object, folder: Path) -> Figures:
    """Bytes per second of `penstock checkpoint verify`, of a database with rows in its log."""
    from penstock.runtime.storage.checkpoints import CheckpointStore
    from penstock.runtime.storage.layout import Layout

    db.execute(penstock.SOURCE.format(name="kept"))  # type: ignore[attr-defined]
    for batch in Shape(5_000_000, batch=1_000_000).batches():
        db.insert("kept", batch)  # type: ignore[attr-defined]
    id = db.checkpoint()  # type: ignore[attr-defined]
    store = CheckpointStore(Layout(folder).checkpoints)
    rates = []
    for _ in range(3):
        began = time.perf_counter()
        size = store.verify(id).bytes
        rates.append(size / (time.perf_counter() - began) / 1e6)
    return {"verified": rates}


WORK = Work(
    name="checkpoints",
    programs={PENSTOCK: with_penstock},
    rows=(
        Row("window query, no checkpoints", "without", "M rows/s"),
        Row("window query, one every second", "with", "M rows/s"),
        Row("what one every second costs", "cost", "%", (AtMost(10.0),), better="less", digits=1),
        Row("a checkpoint of a small database, p50", "p50", "ms", better="less", digits=1),
        Row("the same, p99", "p99", "ms", better="less", digits=1),
        Row("verification of a checkpoint", "verified", "MB/s", digits=0),
    ),
    timeout_s=900.0,
)
