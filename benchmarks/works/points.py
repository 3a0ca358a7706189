"""Statements about single rows through SQL, as drivers send them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.engines import penstock
from benchmarks.work import PENSTOCK, AtLeast, AtMost, Figures, Row, Work

if TYPE_CHECKING:
    import penstock as api

KEYS = 100_000
HOT = 1_000
THREADS = 8
SELECT = "SELECT name, price FROM items WHERE id = ?"


def with_penstock(quick: bool) -> Figures:
    dice = random.Random(1)
    rounds = 60 if quick else 300
    with penstock.opened() as db:
        db.execute("CREATE TABLE items (id BIGINT PRIMARY KEY, name STRING, price DOUBLE)")
        new = iter(range(KEYS, 10 * KEYS))
        first = [
            taken(lambda: db.execute(f"INSERT INTO items VALUES ({next(new)}, 'first', 1.5)")),
            taken(lambda: db.execute(f"UPDATE items SET price = 2.5 WHERE id = {KEYS}")),
            taken(lambda: db.execute(f"DELETE FROM items WHERE id = {KEYS}")),
        ]
        ids = pa.array(range(KEYS), pa.int64())
        names = pa.array([f"item {i}" for i in range(KEYS)])
        db.insert("items", pa.table({"id": ids, "name": names, "price": pa.array(np.arange(KEYS) * 0.5)}))

        def key() -> int:
            return dice.randrange(KEYS)

        statements: dict[str, Callable[[], object]] = {
            "insert": lambda: db.execute(f"INSERT INTO items VALUES ({next(new)}, 'new', 1.5)"),
            "insert_bound": lambda: db.execute("INSERT INTO items VALUES (?, ?, ?)", [next(new), "new", 1.5]),
            "update": lambda: db.execute(f"UPDATE items SET price = {key()}.5 WHERE id = {key()}"),
            "update_bound": lambda: db.execute("UPDATE items SET price = price + ? WHERE id = ?", [1, key()]),
            "delete": lambda: db.execute(f"DELETE FROM items WHERE id = {key()}"),
            "delete_bound": lambda: db.execute("DELETE FROM items WHERE id = ?", [key()]),
            "select": lambda: db.sql(f"SELECT name, price FROM items WHERE id = {key()}").fetchall(),
            "select_bound": lambda: db.sql(SELECT, [key()]).fetchall(),
            "select_hot": lambda: db.sql(SELECT, [key() % HOT]).fetchall(),
        }
        figures = {"first": [max(first)]}
        for name, run in statements.items():
            for _ in range(20 if name != "select_hot" else 5 * HOT):
                run()
            figures[name] = [float(np.percentile([taken(run) for _ in range(rounds)], 50))]
        each = 200 if quick else 1_000
        figures["threads_any"] = [rate(db, each, KEYS, dice) for _ in range(3)][1:]
        figures["threads_hot"] = [rate(db, each, HOT, dice) for _ in range(3)][1:]
    return figures


def taken(run: Callable[[], object]) -> float:
    """In milliseconds."""
    began = time.perf_counter()
    run()
    return (time.perf_counter() - began) * 1_000


def rate(db: api.Database, each: int, keys: int, seeds: random.Random) -> float:
    """Prepared SELECTs a second from several threads, of other keys each time."""

    def work(seed: float) -> None:
        dice = random.Random(seed)
        for _ in range(each):
            db.sql(SELECT, [dice.randrange(keys)]).fetchall()

    began = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        for job in [pool.submit(work, seeds.random()) for _ in range(THREADS)]:
            job.result()
    return THREADS * each / (time.perf_counter() - began)


def _line(title: str, figure: str, most: float) -> Row:
    return Row(title, figure, "ms", (AtMost(most),), better="less", digits=2)


WORK = Work(
    name="points",
    programs={PENSTOCK: with_penstock},
    rows=(
        _line("first INSERT, UPDATE or DELETE, the slowest", "first", 100),
        _line("INSERT of one row, literals, p50", "insert", 5),
        _line("INSERT of one row, parameters, p50", "insert_bound", 5),
        _line("UPDATE by key, literals, p50", "update", 5),
        _line("UPDATE by key, parameters, p50", "update_bound", 5),
        _line("DELETE by key, literals, p50", "delete", 5),
        _line("DELETE by key, parameters, p50", "delete_bound", 5),
        Row("SELECT by key, literals, p50", "select", "ms", better="less", digits=2),
        _line("SELECT by key, parameters, any of 100,000 keys, p50", "select_bound", 2),
        Row("SELECT by key, parameters, 1,000 keys, p50", "select_hot", "ms", better="less", digits=2),
        Row("SELECT by key, 8 threads, any of 100,000 keys", "threads_any", "/s", (AtLeast(5_000),), digits=0),
        Row("SELECT by key, 8 threads, 1,000 keys", "threads_hot", "/s", digits=0),
    ),
)
