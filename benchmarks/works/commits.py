"""One-row commits at a steady rate: from the call of insert to the subscriber of a keyed view."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.engines import penstock
from benchmarks.work import PENSTOCK, Figures, Row, Work

if TYPE_CHECKING:
    import penstock as api

RATES = (10, 100, 1_000)
KEYS = 10
WARM_UP_S = 5.0
SOON_S = 60.0


def with_penstock(quick: bool) -> Figures:
    figures: Figures = {}
    with penstock.opened() as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT)")
        db.execute("CREATE MATERIALIZED VIEW w AS SELECT k, sum(v) AS total, count(*) AS n FROM t GROUP BY k")
        at = 0
        for rate in RATES:
            for seconds, measured in ((WARM_UP_S, False), (4.0 if quick else 15.0, True)):
                taken = latencies(db, at, rate, int(rate * seconds))
                at += int(rate * seconds)
                if measured:
                    figures[f"p50_{rate}"] = [float(np.percentile(taken, 50))]
                    figures[f"p99_{rate}"] = [float(np.percentile(taken, 99))]
    return figures


def latencies(db: api.Database, first: int, rate: int, count: int) -> list[float]:
    """Milliseconds of each commit until the subscriber has a change that includes it. A writer that is late does not wait."""
    began: list[tuple[float, int]] = []
    with db.subscribe("w") as changes:

        def write() -> None:
            start = time.perf_counter()
            for number in range(count):
                due = start + number / rate
                time.sleep(max(0.0, due - time.perf_counter()))
                at = time.perf_counter()
                began.append((at, db.insert("t", [(first + number, number % KEYS, number)])))

        writer = threading.Thread(target=write)
        writer.start()
        taken: list[float] = []
        while len(taken) < count:
            change = changes.next(SOON_S)
            if change is None:
                raise TimeoutError(f"{count - len(taken)} commits did not arrive")
            now = time.perf_counter()
            # The change may be here before the writer has noted the LSN.
            while len(began) < count and (not began or began[-1][1] < change.input_lsn):
                time.sleep(0.0005)
            while len(taken) < len(began) and began[len(taken)][1] <= change.input_lsn:
                taken.append((now - began[len(taken)][0]) * 1_000)
        writer.join()
    return taken


WORK = Work(
    name="commits",
    programs={PENSTOCK: with_penstock},
    rows=tuple(
        Row(f"{rate:,} commits/s to a subscriber, keyed, p{p}", f"p{p}_{rate}", "ms", better="less", digits=1)
        for rate in RATES
        for p in (50, 99)
    ),
    repeats=2,
    timeout_s=300.0,
)
