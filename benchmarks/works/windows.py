"""Many views of closing windows on one source: how long until a push that closes windows is in all of them, how much CPU it takes, and what one more view costs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pyarrow as pa

from benchmarks.data import START_MS, record_batch
from benchmarks.engines import penstock
from benchmarks.work import PENSTOCK, AtMost, Figures, Row, Work
from benchmarks.works.views import cpu

if TYPE_CHECKING:
    import penstock as api

COUNTS = (1, 10, 40)
KEYS = 7
ROWS = 100
WARM_UP = 40
WINDOW_MS = 1_000


def with_penstock(quick: bool) -> Figures:
    figures: Figures = {}
    pushes = 5 if quick else 30
    with penstock.opened() as db:
        db.execute(penstock.SOURCE.format(name="s"))
        jvm = psutil.Process(penstock.jvm_pid(db))
        pushed = 0
        made = 0
        for count in COUNTS:
            while made < count:
                create(db, made)
                made += 1
            figures[f"push_{count}_s"], figures[f"cpu_{count}_ms"] = times(db, made, pushed, pushes, jvm)
            pushed += WARM_UP + pushes
        figures["more_s"] = [one_more(db, made + i) for i in range(5)]
    figures["share_40"] = [float(np.median(figures["push_40_s"]) / np.median(figures["push_1_s"]))]
    return figures


def create(db: api.Database, number: int) -> None:
    db.execute(
        f"CREATE MATERIALIZED VIEW w{number} AS SELECT k, window_end, count(*) AS n, sum(v + {number}) AS total "
        f"FROM s WHERE v >= {number} GROUP BY k, TUMBLE(ts, INTERVAL '{WINDOW_MS}' MILLISECOND) EMIT ON WINDOW CLOSE"
    )


def times(
    db: api.Database, views: int, first: int, pushes: int, jvm: psutil.Process
) -> tuple[list[float], list[float]]:
    """Seconds of each push after the warm-up, until the last view has the windows that it closes; and milliseconds of CPU, of both processes, for one."""
    taken = []
    used = 0.0
    for number in range(WARM_UP + pushes):
        rows = push(first + number)
        if number == WARM_UP:
            used = cpu(jvm)
        began = time.perf_counter()
        db.insert("s", rows)
        db.flush(timeout=60.0)
        taken.append(time.perf_counter() - began)
    spent = cpu(jvm) - used
    ((least,), (most,)) = (db.sql(f"SELECT count(DISTINCT window_end) FROM w{i}").fetchall()[0] for i in (0, views - 1))
    if not 0 < most <= least <= first + WARM_UP + pushes:
        raise RuntimeError(f"{least} and {most} windows have closed")
    return taken[WARM_UP:], [spent / pushes * 1_000]


def push(number: int) -> pa.RecordBatch:
    """Rows of one window, of which the first closes the one before."""
    at = np.arange(ROWS)
    return record_batch(at % KEYS, at + 1_000, np.full(ROWS, START_MS + number * WINDOW_MS))


def one_more(db: api.Database, number: int) -> float:
    """Seconds until another view has all windows that have closed."""
    began = time.perf_counter()
    create(db, number)
    db.flush(timeout=60.0)
    return time.perf_counter() - began


WORK = Work(
    name="windows",
    programs={PENSTOCK: with_penstock},
    rows=(
        Row("100 rows that close windows of 1 view", "push_1_s", "s", better="less", digits=3),
        Row("100 rows that close windows of 10 views", "push_10_s", "s", (AtMost(0.25),), better="less", digits=3),
        Row("100 rows that close windows of 40 views", "push_40_s", "s", (AtMost(0.25),), better="less", digits=3),
        Row("40 views of windows as a multiple of 1", "share_40", "×", (AtMost(2.5),), better="less"),
        *(
            Row(
                f"CPU for 100 rows that close windows of {count} view{'s' if count > 1 else ''}",
                f"cpu_{count}_ms",
                "ms",
                better="less",
                digits=0,
            )
            for count in COUNTS
        ),
        Row("one view of windows more, with its rows", "more_s", "s", (AtMost(0.3),), better="less", digits=3),
    ),
    repeats=2,
    timeout_s=600.0,
)
