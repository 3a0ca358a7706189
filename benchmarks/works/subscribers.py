"""A thousand subscribers of one view in one process: deliveries, memory, and what fifty that do not read cost the others."""

from __future__ import annotations

import gc
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import psutil

from benchmarks.engines import penstock
from benchmarks.work import PENSTOCK, AtLeast, AtMost, Figures, Row, Work

if TYPE_CHECKING:
    import penstock as api

SUBSCRIBERS = 1_000
STALLED = 50
SOON_S = 60.0
KIB = 1 << 10
PACE_S = 0.02
WARM_UP = 30
TURNS = 5


def with_penstock(quick: bool) -> Figures:
    commits = 50 if quick else 300
    with penstock.opened() as db:
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)")
        db.execute("CREATE MATERIALIZED VIEW w AS SELECT k % 10 AS g, sum(v) AS total FROM t GROUP BY k % 10")
        db.subscribe("w").cancel()
        before = resident()
        subscribers = [db.subscribe("w") for _ in range(SUBSCRIBERS)]
        each = (resident() - before) / SUBSCRIBERS
        rounds(db, subscribers, 0, WARM_UP)
        view, view_cpu = zip(*rounds(db, subscribers, WARM_UP, commits), strict=True)
        cancel(subscribers)
        figures = {"kib": [each], "view_per_s": [SUBSCRIBERS / float(np.median(view))]}
        figures["view_per_cpu_s"] = [SUBSCRIBERS / float(np.median(view_cpu))]
        per_s, per_cpu_s = live(db, 1.0 if quick else 4.0)
        figures["live_per_s"], figures["live_per_cpu_s"] = [per_s], [per_cpu_s]
        alone: list[float] = []
        beside: list[float] = []
        for turn in range(TURNS):
            # In turn, so that what else happens on the machine affects both.
            alone += delays(db, 2 * turn, 0, commits // TURNS)
            beside += delays(db, 2 * turn + 1, STALLED, commits // TURNS)
        figures["alone_p99_ms"], figures["stalled_p99_ms"] = [p99(alone)], [p99(beside)]
        figures["stalled_share"] = [p99(beside) / p99(alone)]
    return figures


def rounds(db: api.Database, subscribers: list[api.Subscription], first: int, count: int) -> list[tuple[float, float]]:
    """For each commit the seconds, and those of the reader's CPU, from when the first subscriber waits for nothing more until the last one has its change."""
    taken = []
    for number in range(first, first + count):
        db.insert("t", [(number, 1)])
        db.flush(timeout=SOON_S)
        began, cpu = time.perf_counter(), time.thread_time()
        for s in subscribers:
            if s.next(SOON_S) is None:
                raise TimeoutError(f"commit {number} did not arrive")
        taken.append((time.perf_counter() - began, time.thread_time() - cpu))
    return taken


def live(db: api.Database, seconds: float) -> tuple[float, float]:
    """Deliveries a second, and a second of the process's CPU, while one thread commits as fast as it can and another reads all subscriptions of the table."""
    subscribers = [db.subscribe("t") for _ in range(SUBSCRIBERS)]
    ended = threading.Event()

    def write() -> None:
        number = 1_000_000
        while not ended.is_set():
            db.insert("t", [(number, 1)])
            number += 1

    writer = threading.Thread(target=write)
    began, cpu = time.perf_counter(), time.process_time()
    writer.start()
    delivered = 0
    while time.perf_counter() - began < seconds:
        subscribers[0].next(SOON_S)
        delivered += 1
        for s in subscribers[1:]:
            delivered += s.next(0) is not None
    taken, cpu = time.perf_counter() - began, time.process_time() - cpu
    ended.set()
    writer.join()
    cancel(subscribers)
    return delivered / taken, delivered / cpu


def delays(db: api.Database, turn: int, stalled: int, commits: int) -> list[float]:
    """Milliseconds from each commit to each subscriber of the table that reads, `stalled` of the thousand not reading at all."""
    subscribers = [db.subscribe("t", buffer_messages=16) for _ in range(SUBSCRIBERS)]
    reading = subscribers[stalled:]
    first = (turn + 2) * 1_000_000
    taken = []
    for number in range(first, first + WARM_UP + commits):
        time.sleep(PACE_S)
        began = time.perf_counter()
        db.insert("t", [(number, 1)])
        for s in reading:
            if s.next(SOON_S) is None:
                raise TimeoutError(f"commit {number} did not arrive")
            taken.append((time.perf_counter() - began) * 1_000)
    cancel(subscribers)
    return taken[WARM_UP * len(reading) :]


def cancel(subscribers: list[api.Subscription]) -> None:
    for s in subscribers:
        s.cancel()


def p99(samples: list[float]) -> float:
    return float(np.percentile(samples, 99))


def resident() -> float:
    gc.collect()
    return float(psutil.Process().memory_info().rss) / KIB


WORK = Work(
    name="subscribers",
    programs={PENSTOCK: with_penstock},
    rows=(
        Row("1,000 subscribers of one view", "view_per_s", "deliveries/s", (AtLeast(200_000),), digits=0),
        Row("the same, a second of the reader's CPU", "view_per_cpu_s", "deliveries/s", (AtLeast(200_000),), digits=0),
        Row(
            "1,000 subscribers of one table, beside its writer",
            "live_per_s",
            "deliveries/s",
            (AtLeast(200_000),),
            digits=0,
        ),
        Row("the same, a second of the process's CPU", "live_per_cpu_s", "deliveries/s", (AtLeast(200_000),), digits=0),
        Row("memory of a subscriber", "kib", "KiB", (AtMost(20),), better="less", digits=1),
        Row("one row to 1,000 subscribers, p99", "alone_p99_ms", "ms", better="less"),
        Row("one row to 950 subscribers, 50 stalled, p99", "stalled_p99_ms", "ms", better="less"),
        Row("the same as a multiple of none stalled", "stalled_share", "×", (AtMost(1.2),), better="less"),
    ),
    repeats=2,
    timeout_s=600.0,
)
