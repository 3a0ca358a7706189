"""Durable inserts with no query behind them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.data import START_MS, Shape
from benchmarks.engines import penstock
from benchmarks.work import PENSTOCK, AtLeast, Figures, Row, Work

if TYPE_CHECKING:
    import penstock as api

THREADS = 8


def with_penstock(quick: bool) -> Figures:
    with penstock.opened() as db:
        db.execute(penstock.SOURCE.format(name="s"))
        rows = Shape(2_000_000 if quick else 5_000_000)
        batches = [*rows.batches()]
        each = 100 if quick else 500
        bulk = [rows.rows / seconds(lambda: in_turn(db, batches)) for _ in range(4)]
        single = [THREADS * each / seconds(lambda: in_threads(db, each)) for _ in range(4)]
    # The first of each is warm-up.
    return {"bulk": bulk[1:], "single": single[1:]}


def seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def in_turn(db: api.Database, batches: Sequence[pa.RecordBatch]) -> None:
    for batch in batches:
        db.insert("s", batch)


def in_threads(db: api.Database, each: int) -> None:
    moment = datetime.fromtimestamp(START_MS / 1_000, UTC)
    with ThreadPoolExecutor(THREADS) as pool:
        jobs = [
            pool.submit(lambda: [db.insert("s", {"k": i, "v": i, "ts": moment}) for i in range(each)])
            for _ in range(THREADS)
        ]
        for job in jobs:
            job.result()


WORK = Work(
    name="insert",
    programs={PENSTOCK: with_penstock},
    rows=(
        Row("durable insert, 100,000 rows each", "bulk", "M rows/s", (AtLeast(5e6),)),
        Row("durable insert, one row each, 8 threads", "single", "inserts/s", (AtLeast(2_000),), digits=0),
    ),
)
