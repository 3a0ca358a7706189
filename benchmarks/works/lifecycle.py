"""Streaming queries with a lifecycle: how long one takes to compile, and how long a swap holds up whoever submits rows."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.engines import penstock
from benchmarks.work import PENSTOCK, AtMost, Figures, Row, Work

if TYPE_CHECKING:
    import penstock as api

SCHEMA = """
CREATE SOURCE trades (symbol STRING, price DOUBLE, volume BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND);
CREATE SOURCE ticks (k BIGINT, v BIGINT);
CREATE TABLE companies (symbol STRING PRIMARY KEY, name STRING, sector STRING);
"""
SIMPLE = "SELECT symbol, price FROM trades WHERE price > {n}"
COMPLEX = """
SELECT c.sector, upper(t.symbol) AS symbol, count(*) AS n, sum(t.price * t.volume) AS value,
       max(CASE WHEN t.volume > {n} THEN t.price ELSE 0 END) AS large, min(t.price) AS low, avg(t.volume + {n}) AS mean
FROM trades t JOIN companies c ON t.symbol = c.symbol
WHERE t.price BETWEEN {n} AND 1000 AND t.volume % 7 <> 3 AND c.name LIKE 'A%'
GROUP BY c.sector, upper(t.symbol) HAVING count(*) > 1
"""
FILTERED = "SELECT k, v + {n} AS v FROM ticks WHERE v >= 0"
TOTALS = "SELECT k, sum(v) + {n} AS v FROM ticks GROUP BY k"
WARM_UP = 10
SOON_S = 120.0
PACE_S = 0.002


def with_penstock(quick: bool) -> Figures:
    count = 10 if quick else 40
    with penstock.opened() as db:
        db.execute(SCHEMA)
        figures: Figures = {}
        for name, sql in (("simple", SIMPLE), ("complex", COMPLEX)):
            front, spark = compiled(db, sql, count)
            figures[f"{name}_ms"], figures[f"{name}_spark_ms"] = [front], [spark]
        for name, sql in (("pause", FILTERED), ("totals", TOTALS)):
            pauses, epoch = swaps(db, sql, 5 if quick else 15)
            figures[f"{name}_ms"], figures[f"{name}_epoch_ms"] = [float(np.median(pauses))], [epoch]
            figures[f"{name}_epochs"] = [float(np.median(pauses)) / epoch]
    return figures


def compiled(db: api.Database, sql: str, count: int) -> tuple[float, float]:
    """Milliseconds from text to plan and pipelines, and those of Spark, of queries that were never compiled before."""
    from penstock import StreamingQuery

    found = [StreamingQuery.compile(sql.format(n=n), db=db).metadata for n in range(WARM_UP + count)][WARM_UP:]
    front = [(m.parse_time + m.plan_time + m.extract_time) * 1_000 for m in found]
    return float(np.median(front)), float(np.median([m.compile_time * 1_000 for m in found]))


def swaps(db: api.Database, sql: str, count: int) -> tuple[list[float], float]:
    """For each swap the longest wait of a submitter that never stops, and how long an epoch takes meanwhile; in milliseconds."""
    from penstock import StreamingQuery

    waits: list[tuple[float, float]] = []
    ended = threading.Event()

    def submit(query: StreamingQuery) -> None:
        number = 0
        while not ended.is_set():
            began = time.perf_counter()
            query.submit((number % 10, number))
            waits.append((began, (time.perf_counter() - began) * 1_000))
            number += 1
            time.sleep(PACE_S)

    with StreamingQuery.compile(sql.format(n=0), db=db) as query:
        query.start()
        writer = threading.Thread(target=submit, args=(query,))
        writer.start()
        pauses = []
        for number in range(WARM_UP + count):
            new = query.compile_new_version(sql.format(n=number))
            time.sleep(0.2)
            query.poll_output()
            if number == WARM_UP:
                before = query.metrics()
            began = time.perf_counter()
            query.swap(new)
            taken = [ms for at, ms in list(waits) if at + ms / 1_000 >= began]
            if number >= WARM_UP:
                pauses.append(max(taken, default=0.0))
        ended.set()
        writer.join(SOON_S)
        after = query.metrics()
    epochs = after.ring1_batches_processed - before.ring1_batches_processed
    return pauses, (after.ring1_total_ns - before.ring1_total_ns) / 1e6 / max(1, epochs)


WORK = Work(
    name="lifecycle",
    programs={PENSTOCK: with_penstock},
    rows=(
        Row("compile, simple: text to plan", "simple_ms", "ms", (AtMost(10),), better="less"),
        Row("compile, complex: text to plan", "complex_ms", "ms", (AtMost(50),), better="less"),
        Row("compile, simple: Spark's share", "simple_spark_ms", "ms", better="less", digits=1),
        Row("compile, complex: Spark's share", "complex_spark_ms", "ms", better="less", digits=1),
        Row("hot swap: pause of a submitter", "pause_ms", "ms", better="less", digits=1),
        Row("hot swap: an epoch meanwhile", "pause_epoch_ms", "ms", better="less", digits=1),
        Row("hot swap: the pause in epochs", "pause_epochs", "×", (AtMost(1),), better="less"),
        Row("hot swap of running totals: pause of a submitter", "totals_ms", "ms", better="less", digits=1),
        Row("hot swap of running totals: an epoch meanwhile", "totals_epoch_ms", "ms", better="less", digits=1),
        Row("hot swap of running totals: the pause in epochs", "totals_epochs", "×", (AtMost(1),), better="less"),
    ),
    repeats=2,
    timeout_s=300.0,
)
