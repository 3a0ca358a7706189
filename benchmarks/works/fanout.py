"""Twenty streams on one source: how long until one push is visible in all of them."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.data import START_MS, record_batch
from benchmarks.engines import penstock
from benchmarks.work import PENSTOCK, AtMost, Figures, Row, Work

STREAMS = 20
WARM_UP = 120


def with_penstock(quick: bool) -> Figures:
    pushes = 5 if quick else 20
    return {"stateless_s": times(pushes, keyed=0), "mixed_s": times(pushes, keyed=STREAMS // 2)}


def times(pushes: int, keyed: int) -> list[float]:
    """Seconds of each push, with `keyed` of the streams aggregating and the others projecting."""
    with penstock.opened() as db:
        db.execute(penstock.SOURCE.format(name="s"))
        for i in range(STREAMS):
            if i < keyed:
                select = f"SELECT k % {i + 2} AS g, sum(v) AS total FROM s GROUP BY k % {i + 2} EMIT CHANGES"
            else:
                select = f"SELECT k, v + {i} AS moved FROM s WHERE v >= 0"
            db.execute(f"CREATE STREAM q{i} AS {select}")
        changes = [db.subscribe(f"q{i}") for i in range(STREAMS)]
        taken = []
        for number in range(WARM_UP + pushes):
            rows = record_batch(np.array([number]), np.array([number + 1]), np.array([START_MS + number]))
            began = time.perf_counter()
            db.insert("s", rows)
            for subscription in changes:
                if subscription.next(60.0) is None:
                    raise TimeoutError(f"{subscription.name} has not seen push {number}")
            taken.append(time.perf_counter() - began)
            time.sleep(0.2)
    return taken[WARM_UP:]


WORK = Work(
    name="fanout",
    programs={PENSTOCK: with_penstock},
    rows=(
        Row("20 streams on one source, stateless", "stateless_s", "s", (AtMost(0.8),), better="less"),
        Row("20 streams on one source, 10 of them keyed", "mixed_s", "s", (AtMost(0.25),), better="less"),
    ),
    repeats=2,
    timeout_s=600.0,
)
