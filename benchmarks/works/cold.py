"""From the start of a process to its first result."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil

from benchmarks.data import START_MS, late_row
from benchmarks.engines import penstock
from benchmarks.work import PENSTOCK, AtMost, Figures, Row, Work


def age() -> float:
    """Seconds since this process was started."""
    stat = Path("/proc/self/stat")
    if not stat.exists():
        return time.time() - psutil.Process().create_time()
    # psutil adds the time of the boot, which the kernel rounds to a second.
    started = int(stat.read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def with_penstock(quick: bool) -> Figures:
    with penstock.opened() as db:
        query = penstock.PenstockQuery(db, "first", "SELECT k, sum(v) AS total FROM {source} GROUP BY k EMIT CHANGES")
        query.push(late_row(START_MS))
        if query.poll(60.0) is None:
            raise TimeoutError("no result within a minute")
        return {"seconds": [age()]}


WORK = Work(
    name="cold",
    programs={PENSTOCK: with_penstock},
    rows=(Row("new process to first result", "seconds", "s", (AtMost(5.0),), better="less", digits=1),),
    repeats=5,
)
