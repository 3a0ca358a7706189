"""The queries of the Nexmark auction, one after the other."""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.engines import flink, penstock, spark
from benchmarks.nexmark import by_hand, flink_sql
from benchmarks.nexmark.by_hand import BY_HAND
from benchmarks.nexmark.queries import BY_NAME, QUERIES, Query, create
from benchmarks.nexmark.rows import Input, events_of, input_of, side_input
from benchmarks.work import FLINK, PENSTOCK, SPARK, Against, Figures, Partly, Row, Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    import penstock as api

SIDE = "side_input"
WARM_UP, ROUNDS = 1, 2
WAIT_S = 120.0
# After everything is taken in, results that are still under way to the subscriber come within this time.
PAUSE_S = 0.02


def each(
    names: list[str], quick: bool, run: Callable[[Query, Input], tuple[float, float]], rounds: int = ROUNDS
) -> Figures:
    """Rows per second of each query. `run` gives seconds and the number of rows that the result has in the end."""
    figures: Figures = {}
    failed = {}
    # Queries with the same rows one after the other: making the rows takes as long as some of the queries.
    for name in sorted(names, key=lambda name: (BY_NAME[name].reads, events_of(name))):
        query = BY_NAME[name]
        given = input_of(query, quick)
        try:
            taken = [run(query, given) for _ in range(WARM_UP + (1 if quick else rounds))][WARM_UP:]
        except Exception as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            failed[name] = (str(error).strip() or type(error).__name__).splitlines()[0][:160]
            continue
        figures[name] = [given.rows / seconds for seconds, _ in taken]
        figures[f"{name}_rows"] = [rows for _, rows in taken]
        print(name, *(f"{seconds:.2f} s, {rows:.0f} rows;" for seconds, rows in taken), file=sys.stderr, flush=True)
    if failed:
        raise Partly(figures, "; ".join(f"{name}: {why}" for name, why in failed.items()))
    return figures


class Receiver:
    """Counts the rows of a result as its changes come."""

    def __init__(self) -> None:
        self.rows = 0
        self.last = 0.0

    def take(self, table: pa.Table) -> None:
        weighted = "__weight" in table.column_names
        self.rows += (pc.sum(table["__weight"]).as_py() or 0) if weighted else table.num_rows
        self.last = time.perf_counter()


def with_penstock(quick: bool) -> Figures:
    with penstock.opened() as db:
        return each([query.name for query in QUERIES], quick, lambda query, given: _penstock(db, query, given))


def _penstock(db: api.Database, query: Query, given: Input) -> tuple[float, float]:
    try:
        for name in query.reads:
            db.execute(create(name))
        if SIDE in query.reads:
            db.insert(SIDE, side_input())
        db.execute(query.create("STREAM"))
        return _stream(db, query, given)
    finally:
        for name in query.reads:
            db.execute(f"DROP {'LOOKUP TABLE' if name == SIDE else 'SOURCE'} IF EXISTS {name} CASCADE")


def _stream(db: api.Database, query: Query, given: Input) -> tuple[float, float]:
    receiver = Receiver()
    ended: list[float] = []
    failed: list[BaseException] = []

    def push() -> None:
        try:
            for source, batch in given.batches:
                db.insert(source, batch)
            db.flush(timeout=WAIT_S)
        except BaseException as error:
            failed.append(error)
        ended.append(time.perf_counter())

    with db.subscribe(query.name) as changes:
        began = time.perf_counter()
        pusher = threading.Thread(target=push, daemon=True)
        pusher.start()
        while True:
            change = changes.next(PAUSE_S)
            if change is not None:
                receiver.take(change.arrow())
            elif ended:
                break
        pusher.join()
    if failed:
        raise failed[0]
    return max(ended[0], receiver.last) - began, receiver.rows


def with_spark(quick: bool) -> Figures:
    with spark.opened() as (session, folder):
        numbers = iter(range(1_000))
        return each(
            list(BY_HAND), quick, lambda query, given: _spark(session, folder / f"{next(numbers)}", query, given)
        )


def _spark(session: SparkSession, folder: Path, query: Query, given: Input) -> tuple[float, float]:
    form = BY_HAND[query.name]
    receiver = Receiver()
    files = spark.Files(folder)
    frames = {}
    for name in query.reads:
        if name == SIDE:
            frames[name] = session.createDataFrame(pa.Table.from_batches([side_input()])).cache()
        else:
            schema = next(batch.schema for source, batch in given.batches if source == name)
            frames[name] = files.stream(session, name, schema)

    def receive(frame: DataFrame, epoch: int) -> None:
        receiver.take(frame.toArrow())

    running = (
        form.build(frames)
        .writeStream.outputMode(form.mode)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(receive)
        .start()
    )
    try:
        began = time.perf_counter()
        for source, batch in given.batches:
            files.push(source, batch)
        running.processAllAvailable()
        return time.perf_counter() - began, receiver.rows
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


def with_flink(quick: bool) -> Figures:
    folder = Path(tempfile.mkdtemp(prefix="flink-bench-"))
    try:
        return each(list(flink_sql.QUERIES), quick, lambda query, given: _flink(folder, query, given), rounds=1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _flink(folder: Path, query: Query, given: Input) -> tuple[float, float]:
    engine = flink_with(Path(tempfile.mkdtemp(dir=folder)), query, given)
    return engine.seconds(flink_sql.QUERIES[query.name]), 0.0


def flink_with(folder: Path, query: Query, given: Input) -> flink.Flink:
    """Flink with what the query reads."""
    batches = {name: [batch for source, batch in given.batches if source == name] for name in query.reads}
    if SIDE in batches:
        batches[SIDE] = [side_input()]
    flink.write(folder, batches)
    engine = flink.Flink(folder)
    for name in query.reads:
        engine.execute(flink_sql.table(name, folder / name))
    return engine


def _rows() -> Iterator[Row]:
    for query in QUERIES:
        bars = (Against(SPARK, 1.0),) if query.name in BY_HAND else ()
        refused = {SPARK: by_hand.WHY_NOT, FLINK: flink_sql.WHY_NOT}
        missing = {who: why[query.name] for who, why in refused.items() if query.name in why}
        yield Row(f"Nexmark {query.name}: {query.title}", query.name, "M rows/s", bars, refused=missing)


WORK = Work(
    name="nexmark",
    programs={PENSTOCK: with_penstock, SPARK: with_spark, FLINK: with_flink},
    rows=tuple(_rows()),
    repeats=1,
    timeout_s=900.0,
)
