"""Cycles that must leave nothing behind: run as `python -m tests.e2e.leaking FOLDER KIND COUNT`.

It prints the resources of the process after a tenth of the cycles and at the end. Until then Python and the JVM warm up: code is compiled, pools
are filled, caches reach their sizes.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import penstock

CONFIG = {
    "spark.heap": "1g",
    "log.segment_bytes": 1 << 20,
    "log.retain_bytes": 1 << 18,
    "checkpoint.max_retained": 1,
}

_POOLS = ("block-manager-",)
"""Pools of Spark with up to a hundred threads, which end when they have had nothing to do for a minute."""
STEP_MS = 10_000


def figures(db: penstock.Database, folder: Path) -> dict[str, int]:
    """What a leak would show in, after everything that is garbage is gone."""
    db._engine.checkpoints.make()
    db._engine.ticker.trim()
    gc.collect()
    jvm = db.spark._jvm  # type: ignore[attr-defined]
    child = jvm.java.lang.ProcessHandle.current().pid()
    _await_unloaded(child)
    management = jvm.java.lang.management.ManagementFactory
    for _ in range(3):
        jvm.java.lang.System.gc()
    pools = {p.getName(): p.getUsage().getUsed() for p in management.getMemoryPoolMXBeans()}
    files = [p for p in folder.rglob("*") if p.is_file()]
    return {
        "python_threads": threading.active_count(),
        "python_files": len(os.listdir("/proc/self/fd")),
        "python_kb": _resident("self"),
        "jvm_threads": sum(not name.startswith(_POOLS) for name in _threads(management.getThreadMXBean())),
        "jvm_files": len(os.listdir(f"/proc/{child}/fd")),
        "jvm_heap_kb": management.getMemoryMXBean().getHeapMemoryUsage().getUsed() // 1024,
        "metaspace_kb": pools["Metaspace"] // 1024,
        "folder_files": len(files),
        "folder_kb": _allocated(files),
        "log_kb": _allocated(p for p in files if p.parent.name == "log"),
    }


def _allocated(files: Iterable[Path]) -> int:
    """Kilobytes on disk: thinned segments are sparse."""
    return sum(p.stat().st_blocks for p in files) // 2


def _await_unloaded(process: int) -> None:
    """Waits until Spark has unloaded the state of queries that are gone: until no file was closed for longer than Spark needs.

    It looks once a minute, and a second time before it does so.
    """
    files, since = -1, time.monotonic()
    until = since + 300
    while time.monotonic() < min(until, since + 130):
        now = len(os.listdir(f"/proc/{process}/fd"))
        if now != files:
            files, since = now, time.monotonic()
        time.sleep(5)


def _threads(bean: Any) -> list[str]:
    return [str(info.getThreadName()) for info in bean.getThreadInfo(bean.getAllThreadIds()) if info is not None]


def _resident(process: str) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1])


class Objects:
    """Creates and drops queries, with and without state, over a source that has rows."""

    def __init__(self, db: penstock.Database) -> None:
        self.db = db
        db.execute("CREATE SOURCE s (k BIGINT, v BIGINT)")
        db.insert("s", [(i % 10, i) for i in range(100)])

    def cycle(self, number: int) -> None:
        db = self.db
        query = "SELECT k, sum(v) AS t FROM s GROUP BY k" if number % 2 else "SELECT k, v + 1 AS w FROM s WHERE v > 1"
        db.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
        assert db.sql(f"SELECT count(*) AS n FROM v{number}").fetchall() == [(10 if number % 2 else 98,)]
        db.execute(f"DROP MATERIALIZED VIEW v{number}")


class Subscribers:
    """Subscribes and cancels; some have read, some have not, some are only forgotten."""

    def __init__(self, db: penstock.Database) -> None:
        self.db = db
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)")
        db.execute("CREATE MATERIALIZED VIEW m AS SELECT k, v FROM t WHERE v > 0")
        db.insert("t", [(i, i) for i in range(100)])
        db.flush(timeout=60)

    def cycle(self, number: int) -> None:
        subscription = self.db.subscribe("m" if number % 2 else "t", snapshot=number % 3 == 0)
        if number % 3 == 0:
            assert subscription.next(timeout=60) is not None
        if number % 100 == 0:
            self.db.insert("t", [(number, number)])
        if number % 10:
            subscription.cancel()


class Plans:
    """Subscribes to one of 100 queries, each of which then starts a plan, and releases it; some are only forgotten."""

    def __init__(self, db: penstock.Database) -> None:
        self.db = db
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)")
        db.insert("t", [(i, i) for i in range(200)])

    def cycle(self, number: int) -> None:
        n = number % 100
        keyed = f"SELECT k % {n + 2} AS g, sum(v) AS total FROM t GROUP BY k % {n + 2}"
        subscription = self.db.subscribe(keyed if n % 2 else f"SELECT k, v FROM t WHERE v > {n}", snapshot=n % 3 == 0)
        if n % 3 == 0:
            assert subscription.next(timeout=60) is not None
        if number % 10:
            subscription.cancel()


class Day:
    """Ten seconds of a day's traffic in each cycle: windows that close, keys that come and go, updates and deletes."""

    def __init__(self, db: penstock.Database) -> None:
        self.db = db
        db.execute("""
            CREATE SOURCE e (k STRING, v BIGINT, ts BIGINT, WATERMARK FOR ts);
            CREATE TABLE users (k STRING PRIMARY KEY, v BIGINT);
            CREATE STREAM minutes AS SELECT k, window_start, sum(v) AS t FROM e
              GROUP BY k, TUMBLE(ts, INTERVAL '1' MINUTE) EMIT ON WINDOW CLOSE;
            CREATE MATERIALIZED VIEW total AS SELECT v % 4 AS g, count(*) AS n FROM users GROUP BY v % 4;
        """)
        self.reader = db.subscribe("minutes")
        self.rows = 0

    def cycle(self, number: int) -> None:
        db, at = self.db, number * STEP_MS
        db.insert("e", [(f"k{i}", 1, at + i * 100) for i in range(20)])
        db.insert("users", [(f"u{number}", number)])
        if number >= 50:
            db.execute("DELETE FROM users WHERE k = ?", [f"u{number - 50}"])
        while (change := self.reader.next(timeout=0)) is not None:
            self.rows += len(change.rows()) if change.kind != "progress" else 0


KINDS = {"objects": Objects, "subscribers": Subscribers, "plans": Plans, "day": Day}


def main(folder: Path, kind: str, count: int) -> None:
    with penstock.open(folder, master="local[2]", config=CONFIG) as db:
        cycles = KINDS[kind](db)
        for number in range(count):
            cycles.cycle(number)
            if number in (count // 10, count - 1):
                db.flush(timeout=300)
                sys.stdout.write(json.dumps({"cycles": number + 1} | figures(db, folder)) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
