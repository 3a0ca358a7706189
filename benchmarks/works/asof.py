"""An ASOF join: each trade with the last quote of its symbol."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.data import BATCH, START_MS, TIME
from benchmarks.engines import penstock
from benchmarks.engines.query import SILENCE_S
from benchmarks.rounds import ROUNDS, WARM_UP
from benchmarks.work import DUCKDB, PENSTOCK, AtLeast, Figures, Row, Work

if TYPE_CHECKING:
    import penstock as api

SYMBOLS = 1_000
# Event time goes at 100 trades and 100 quotes in a millisecond.
PER_MS = 100
SQL = """
SELECT t.symbol, t.price, t.ts, q.bid, q.ts AS since
FROM {trades} t ASOF JOIN {quotes} q MATCH_CONDITION (t.ts >= q.ts) ON t.symbol = q.symbol
"""
DUCKDB_SQL = """
SELECT t.symbol, t.price, t.ts, q.bid, q.ts AS since
FROM trades t ASOF LEFT JOIN quotes q ON t.symbol = q.symbol AND t.ts >= q.ts
"""


def side(rows: int, price: str, seed: int) -> list[pa.RecordBatch]:
    """Batches (symbol, `price`, ts) of one side; both sides go through the same time."""
    names = pa.array([f"S{number:04d}" for number in range(SYMBOLS)])
    batches = []
    for first in range(0, rows, BATCH):
        random = np.random.default_rng([seed, first])
        size = min(BATCH, rows - first)
        micros = START_MS * 1_000 + (np.arange(first, first + size) * 1_000 + 500 * seed) // PER_MS
        batches.append(
            pa.record_batch(
                {
                    "symbol": names.take(pa.array(random.integers(0, SYMBOLS, size))),
                    price: random.integers(1, 1_000_000, size) / 100,
                    "ts": pa.array(micros, pa.int64()).cast(TIME),
                }
            )
        )
    return batches


def last(rows: int, price: str) -> pa.RecordBatch:
    """A row so much later that every trade before it is answered."""
    time_ = pa.array([(START_MS + rows // PER_MS + 60_000) * 1_000], pa.int64()).cast(TIME)
    return pa.record_batch({"symbol": pa.array(["END"]), price: pa.array([0.0]), "ts": time_})


def one(db: api.Database, name: str, trades: Sequence[pa.RecordBatch], quotes: Sequence[pa.RecordBatch]) -> float:
    """Seconds from the first insert until every trade is answered."""
    sides = {"quotes": (f"{name}_quotes", "bid"), "trades": (f"{name}_trades", "price")}
    for source, price in sides.values():
        db.execute(
            f"CREATE SOURCE {source} (symbol STRING, {price} DOUBLE, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)"
        )
    db.execute(f"CREATE STREAM {name} AS " + SQL.format(**{side: source for side, (source, _) in sides.items()}))
    rows = sum(batch.num_rows for batch in trades)
    failed: list[BaseException] = []

    def push() -> None:
        try:
            ends = (last(rows, "bid"), last(rows, "price"))
            for pair in (*zip(quotes, trades, strict=True), ends):
                for (source, _), batch in zip(sides.values(), pair, strict=True):
                    db.insert(source, batch)
        except BaseException as error:
            failed.append(error)

    with db.subscribe(name) as changes:
        began = time.perf_counter()
        pusher = threading.Thread(target=push, daemon=True)
        pusher.start()
        answered = 0
        while answered < rows:
            change = changes.next(SILENCE_S)
            if failed:
                raise failed[0]
            if change is None:
                raise TimeoutError(f"{answered} of {rows} trades")
            answered += len(change)
        seconds = time.perf_counter() - began
        pusher.join()
    db.execute(f"DROP STREAM {name}; DROP SOURCE {name}_trades; DROP SOURCE {name}_quotes")
    if answered > rows:
        raise AssertionError(f"{answered} answers to {rows} trades")
    return seconds


def with_penstock(quick: bool) -> Figures:
    rows = 200_000 if quick else 1_000_000
    trades, quotes = side(rows, "price", 1), side(rows, "bid", 0)
    warm_up, measured = (1, 1) if quick else (WARM_UP, ROUNDS)
    with penstock.opened() as db:
        times = [one(db, f"asof{number}", trades, quotes) for number in range(warm_up + measured)]
    return {"rows_per_s": [2 * rows / seconds for seconds in times[warm_up:]]}


def with_duckdb(quick: bool) -> Figures:
    """All rows at once, from memory to memory, on as many threads."""
    import duckdb

    rows = 200_000 if quick else 1_000_000
    rates = []
    with duckdb.connect(":memory:", config={"threads": 2}) as db:
        db.execute("SET TimeZone = 'UTC'")
        db.register("trades", pa.Table.from_batches(side(rows, "price", 1)))
        db.register("quotes", pa.Table.from_batches(side(rows, "bid", 0)))
        for _ in range(4):
            began = time.perf_counter()
            answers = db.sql(DUCKDB_SQL).to_arrow_table()
            rates.append(2 * rows / (time.perf_counter() - began))
            if answers.num_rows != rows or pc.sum(pc.is_null(answers["bid"])).as_py() > rows // 100:
                raise AssertionError(f"{answers.num_rows} answers to {rows} trades")
    return {"rows_per_s": rates[1:]}


WORK = Work(
    name="asof",
    programs={PENSTOCK: with_penstock, DUCKDB: with_duckdb},
    rows=(Row("ASOF join, 1 M trades with 1 M quotes", "rows_per_s", "M rows/s", (AtLeast(1.5e6),)),),
    repeats=2,
)
