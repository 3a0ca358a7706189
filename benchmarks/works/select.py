"""SELECT of one key from a view with many."""

from __future__ import annotations

import random
import time

import numpy as np

from benchmarks.data import START_MS, record_batch
from benchmarks.engines import penstock
from benchmarks.work import PENSTOCK, AtMost, Figures, Row, Work

KEYS = 100_000


def with_penstock(quick: bool) -> Figures:
    dice = random.Random(1)
    taken = []
    with penstock.opened() as db:
        db.execute(penstock.SOURCE.format(name="s"))
        db.execute("CREATE MATERIALIZED VIEW totals AS SELECT k, sum(v) AS total, count(*) AS n FROM s GROUP BY k")
        keys = np.arange(KEYS)
        db.insert("s", record_batch(keys, keys % 1_000, np.full(KEYS, START_MS)))
        db.flush(timeout=120)
        for _ in range(70 if quick else 220):
            key = dice.randrange(KEYS)
            began = time.perf_counter()
            rows = db.sql(f"SELECT * FROM totals WHERE k = {key}").fetchall()
            taken.append((time.perf_counter() - began) * 1_000)
            if rows != [(key, key % 1_000, 1)]:
                raise AssertionError(f"key {key}: {rows}")
    warm = taken[20:]
    return {"p50": [float(np.percentile(warm, 50))], "p99": [float(np.percentile(warm, 99))]}


WORK = Work(
    name="select",
    programs={PENSTOCK: with_penstock},
    rows=(
        Row("SELECT of one key of 100,000, p50", "p50", "ms", (AtMost(2),), better="less", digits=1),
        Row("SELECT of one key of 100,000, p99", "p99", "ms", better="less", digits=1),
    ),
)
