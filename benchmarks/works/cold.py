"""From the start of a process to its first result."""

from __future__ import annotations

import time

import psutil

from benchmarks.data import START_MS, late_row
from benchmarks.engines import penstock
from benchmarks.work import PENSTOCK, AtMost, Figures, Row, Work


def with_penstock(quick: bool) -> Figures:
    with penstock.opened() as db:
        query = penstock.PenstockQuery(db, "first", "SELECT k, sum(v) AS total FROM {source} GROUP BY k EMIT CHANGES")
        query.push(late_row(START_MS))
        if query.poll(60.0) is None:
            raise TimeoutError("no result within a minute")
        return {"seconds": [time.time() - psutil.Process().create_time()]}


WORK = Work(
    name="cold",
    programs={PENSTOCK: with_penstock},
    rows=(Row("new process to first result", "seconds", "s", (AtMost(5.0),), better="less", digits=1),),
    repeats=5,
)
