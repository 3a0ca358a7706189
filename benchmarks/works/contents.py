"""A table and a view that are larger than the memory for them: loading, memory, reads by key, and opening."""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pyarrow as pa

from benchmarks.engines import penstock
from benchmarks.work import PENSTOCK, AtMost, Figures, Row, Work

if TYPE_CHECKING:
    import penstock as api

BATCH = 100_000
SAMPLE_S = 0.1
MIB = 1 << 20
SELECT = "SELECT price FROM {name} WHERE id = ?"


class Most(threading.Thread):
    """The most memory that a process has used, in MiB, and its part that is not a file in the page cache."""

    def __init__(self, process: psutil.Process) -> None:
        super().__init__(daemon=True)
        self._process = process
        self._over = threading.Event()
        self.resident = 0.0
        self.own = 0.0

    def run(self) -> None:
        while not self._over.wait(SAMPLE_S):
            now = self._process.memory_info()
            self.resident = max(self.resident, now.rss / MIB)
            self.own = max(self.own, (now.rss - now.shared) / MIB)

    def stop(self) -> None:
        self._over.set()
        self.join()


def rows(first: int) -> pa.Table:
    ids = np.arange(first, first + BATCH)
    # Keys in no order, each once: a multiplication by an odd number permutes the numbers of so many bits.
    keys = (ids * 0x2545F491 + 12345) % (1 << 40)
    names = pa.array(np.char.add("item ", ids.astype(str)))
    return pa.table({"id": keys, "name": names, "price": ids * 0.5})


def key(number: int) -> int:
    return (number * 0x2545F491 + 12345) % (1 << 40)


def opened(folder: Path, quick: bool) -> api.Database:
    import penstock as api

    config = {"serve.memory_limit": "2gib", "spark.heap": "2g"} | ({"serve.object_memory": "4mb"} if quick else {})
    return api.open(folder, master=penstock.MASTER, config=config)


def with_penstock(quick: bool) -> Figures:
    count = 2_000_000 if quick else 50_000_000
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        return _measured(folder / "data", count, quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measured(folder: Path, count: int, quick: bool) -> Figures:
    figures: Figures = {}
    loading = 0.0
    with opened(folder, quick) as db:
        db.execute("CREATE TABLE items (id BIGINT PRIMARY KEY, name STRING, price DOUBLE)")
        db.execute("CREATE MATERIALIZED VIEW half AS SELECT id, name, price / 2 AS price FROM items")
        loading += _load(db, 0, count // 10)
    # The JVM of the process is still there: this is what the contents add to opening.
    figures["open_tenth"] = [_open(folder, count // 10, quick)]
    with opened(folder, quick) as db:
        watched = [Most(psutil.Process()), Most(psutil.Process(penstock.jvm_pid(db)))]
        for w in watched:
            w.start()
        loading += _load(db, count // 10, count)
        for w in watched:
            w.stop()
        figures |= {
            "python": [watched[0].resident],
            "python_own": [watched[0].own],
            "jvm": [watched[1].resident],
            "rate": [count / loading],
        }
        for name in ("items", "half"):
            taken = _reads(db, name, count, 300 if quick else 3_000)
            figures[f"{name}_p50"], figures[f"{name}_p99"] = [[float(np.percentile(taken, p))] for p in (50, 99)]
        begun = time.perf_counter()
        assert db.sql("SELECT count(*) AS n FROM half").fetchall() == [(count,)]
        figures["scan"] = [time.perf_counter() - begun]
    figures["open_all"] = [_open(folder, count, quick)]
    figures["open_ratio"] = [figures["open_all"][0] / figures["open_tenth"][0]]
    return figures


def _load(db: api.Database, start: int, end: int) -> float:
    """Inserts rows until the view has them too; the time that it takes."""
    begun = time.perf_counter()
    for first in range(start, end, BATCH):
        db.insert("items", rows(first))
    db.flush()
    return time.perf_counter() - begun


def _open(folder: Path, count: int, quick: bool) -> float:
    """From a closed database to a row of the table and one of the view."""
    begun = time.perf_counter()
    with opened(folder, quick) as db:
        for name, price in (("items", (count - 1) * 0.5), ("half", (count - 1) * 0.25)):
            assert db.sql(SELECT.format(name=name), [key(count - 1)]).fetchall() == [(price,)]
        return time.perf_counter() - begun


def _reads(db: api.Database, name: str, count: int, times: int) -> list[float]:
    """Milliseconds of reads of one row, by any key."""
    dice = random.Random(1)
    taken = []
    for _ in range(times):
        number = dice.randrange(count)
        begun = time.perf_counter()
        [(price,)] = db.sql(SELECT.format(name=name), [key(number)]).fetchall()
        taken.append((time.perf_counter() - begun) * 1000)
        assert price == number * (0.5 if name == "items" else 0.25)
    return taken


WORK = Work(
    name="contents",
    programs={PENSTOCK: with_penstock},
    rows=(
        Row("50 M rows in a table and a view: loading", "rate", "rows/s", digits=0),
        Row("50 M rows: Python, most", "python", "MiB", (AtMost(2048),), better="less", digits=0),
        Row("50 M rows: Python without mapped files, most", "python_own", "MiB", better="less", digits=0),
        Row("50 M rows: JVM, most", "jvm", "MiB", better="less", digits=0),
        Row("50 M rows: a row of the table by key, p50", "items_p50", "ms", (AtMost(2),), better="less"),
        Row("50 M rows: a row of the table by key, p99", "items_p99", "ms", better="less"),
        Row("50 M rows: a row of the view by key, p50", "half_p50", "ms", (AtMost(2),), better="less"),
        Row("50 M rows: a row of the view by key, p99", "half_p99", "ms", better="less"),
        Row("50 M rows: count(*) of the view", "scan", "s", better="less"),
        Row("5 M rows: open", "open_tenth", "s", better="less"),
        Row("50 M rows: open", "open_all", "s", better="less"),
        Row("open, 50 M : 5 M rows", "open_ratio", "×", (AtMost(1.5),), better="less"),
    ),
    repeats=1,
    timeout_s=5_400.0,
)
