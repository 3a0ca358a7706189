"""A steady million rows a second into the window query."""

from __future__ import annotations

import threading
import time

import pyarrow.compute as pc

from benchmarks.data import Shape
from benchmarks.engines import penstock
from benchmarks.work import PENSTOCK, AtLeast, AtMost, Figures, Row, Work
from benchmarks.works.window import SQL

INTERVAL_S = 0.1
# 1,000 rows in each millisecond of event time: event time goes as fast as the clock.
PER_MS = 1_000
WARM_UP_S = 3


def with_penstock(quick: bool) -> Figures:
    with penstock.opened() as db:
        run(penstock.PenstockQuery(db, "warm", SQL), WARM_UP_S)
        return run(penstock.PenstockQuery(db, "steady", SQL), 5 if quick else 20)


def run(query: penstock.PenstockQuery, seconds: int) -> Figures:
    rows = Shape(seconds * 1_000 * PER_MS, per_ms=PER_MS)
    batches = [*rows.batches()]
    pushed = [0.0]
    failed: list[BaseException] = []

    def push() -> None:
        try:
            began = time.perf_counter()
            for number, batch in enumerate(batches):
                time.sleep(max(0.0, began + number * INTERVAL_S - time.perf_counter()))
                query.push(batch)
            pushed[0] = time.perf_counter()
            query.push(rows.last())
        except BaseException as error:
            failed.append(error)

    pusher = threading.Thread(target=push, daemon=True)
    began = time.perf_counter()
    pusher.start()
    counted = 0
    while counted < rows.rows and not failed:
        table = query.poll(60.0)
        if table is None:
            raise TimeoutError(f"{counted} of {rows.rows} rows after a minute without results")
        counted += pc.sum(table["n"]).as_py() or 0
    if failed:
        raise failed[0]
    ended = time.perf_counter()
    query.close()
    # The last batch is due one interval before the end; what is pushed later than that, the insert has held up.
    rate = rows.rows / max(pushed[0] - began + INTERVAL_S, seconds)
    return {"lag_s": [max(0.0, ended - pushed[0])], "rate": [rate]}


WORK = Work(
    name="steady",
    programs={PENSTOCK: with_penstock},
    rows=(
        Row("steady 1.0 M rows/s: taken in", "rate", "M rows/s", (AtLeast(0.99e6),)),
        Row("steady 1.0 M rows/s: lag after the last push", "lag_s", "s", (AtMost(1.0),), better="less"),
    ),
)
