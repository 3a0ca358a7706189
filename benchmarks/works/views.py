"""Many keyed views on one source: how long until a push is in all of them and how much CPU that takes, what one more costs, and how much memory each takes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pyarrow as pa

from benchmarks.data import START_MS, record_batch
from benchmarks.engines import penstock
from benchmarks.work import PENSTOCK, AtMost, Figures, Row, Work

if TYPE_CHECKING:
    import penstock as api

COUNTS = (1, 10, 40, 100)
KEYS = 7
ROWS = 100
WARM_UP = 60
MIB = 1 << 20


def with_penstock(quick: bool) -> Figures:
    figures: Figures = {}
    pushes = 5 if quick else 30
    with penstock.opened() as db:
        db.execute(penstock.SOURCE.format(name="s"))
        jvm = psutil.Process(penstock.jvm_pid(db))
        made, first = 0, 0.0
        for count in COUNTS:
            while made < count:
                create(db, made)
                made += 1
            figures[f"push_{count}_s"], figures[f"cpu_{count}_ms"] = times(db, made, pushes, jvm)
            if count == 1:
                first = resident(jvm)
        figures["view_mib"] = [max(0.0, resident(jvm) - first) / (made - 1)]
        figures["more_s"] = [one_more(db, made + i) for i in range(5)]
    figures["share_40"] = [float(np.median(figures["push_40_s"]) / np.median(figures["push_1_s"]))]
    return figures


def create(db: api.Database, number: int) -> None:
    db.execute(
        f"CREATE MATERIALIZED VIEW v{number} AS SELECT k, count(*) AS n, sum(v + {number}) AS total "
        f"FROM s WHERE v >= {number} GROUP BY k"
    )


def times(db: api.Database, views: int, pushes: int, jvm: psutil.Process) -> tuple[list[float], list[float]]:
    """Seconds of each push after the warm-up, until the last view has it; and milliseconds of CPU, of both processes, for one."""
    taken = []
    used = 0.0
    for number in range(WARM_UP + pushes):
        rows = push(number)
        if number == WARM_UP:
            used = cpu(jvm)
        began = time.perf_counter()
        db.insert("s", rows)
        db.flush(timeout=60.0)
        taken.append(time.perf_counter() - began)
    spent = cpu(jvm) - used
    ((n,),) = db.sql(f"SELECT count(*) FROM v{views - 1}").fetchall()
    if n != KEYS:
        raise RuntimeError(f"v{views - 1} has {n} groups")
    return taken[WARM_UP:], [spent / pushes * 1_000]


def cpu(jvm: psutil.Process) -> float:
    """Seconds, of the JVM and of this process."""
    return sum(times.user + times.system for times in (jvm.cpu_times(), psutil.Process().cpu_times()))


def push(number: int) -> pa.RecordBatch:
    at = np.arange(ROWS)
    return record_batch(at % KEYS, at + 1_000, np.full(ROWS, START_MS + number))


def one_more(db: api.Database, number: int) -> float:
    """Seconds until another view has all that was pushed before."""
    began = time.perf_counter()
    create(db, number)
    db.flush(timeout=60.0)
    return time.perf_counter() - began


def resident(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / MIB


WORK = Work(
    name="views",
    programs={PENSTOCK: with_penstock},
    rows=(
        Row("100 rows to 1 keyed view", "push_1_s", "s", better="less", digits=3),
        Row("100 rows to 10 keyed views", "push_10_s", "s", (AtMost(0.25),), better="less", digits=3),
        Row("100 rows to 40 keyed views", "push_40_s", "s", (AtMost(0.25),), better="less", digits=3),
        Row("40 keyed views as a multiple of 1", "share_40", "×", (AtMost(2.5),), better="less"),
        Row("100 rows to 100 keyed views", "push_100_s", "s", (AtMost(0.5),), better="less", digits=3),
        *(
            Row(
                f"CPU for 100 rows to {count} keyed view{'s' if count > 1 else ''}",
                f"cpu_{count}_ms",
                "ms",
                better="less",
                digits=0,
            )
            for count in COUNTS
        ),
        Row("one keyed view more, with its rows", "more_s", "s", (AtMost(0.3),), better="less", digits=3),
        Row("memory of the JVM for each keyed view", "view_mib", "MiB", (AtMost(10),), better="less", digits=1),
    ),
    repeats=2,
    timeout_s=900.0,
)
