"""The TPC-H queries as live views: rows come, change and go, and at every checkpoint each view equals Spark's batch answer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession
from tests.effort import EFFORT
from tests.spark.batch_model import Batch, Maintained
from tests.spark.conftest import Opener
from tests.spark.following import settle
from tests.spark.tpch.queries import QUERIES
from tests.spark.tpch.tables import TABLES, Contents, Key, Maker, put

import penstock

CHECKED = (1, 4) if EFFORT > 1 else (4,)
"""The commits that are checked: in `make test-long` when the tables are full; always at the end, after updates, deletions and returns."""

Changes = dict[str, dict[Key, tuple[object, ...] | None]]
"""What a commit does to each table: the new row of a key, or None where it goes."""


class History:
    """The contents of the tables as they grow and change, in commits that are the same for one seed."""

    def __init__(self, seed: int, orders: int) -> None:
        self.maker = Maker(seed, suppliers=24, parts=max(24, orders // 6), customers=max(30, orders // 5))
        self.chance = random.Random(seed)
        self.orders = orders
        self.now: Contents = {name: {} for name in TABLES}
        self.whole = self.maker.base()

    def commits(self, more: int) -> Iterator[Changes]:
        """Most of everything; the rest, with `more` orders that do not stay; then updates, deletions, and half of what was deleted again."""
        for key in range(1, self.orders + more + 1):
            order, lines = self.maker.order(key)
            put(self.whole, "orders", order)
            for line in lines:
                put(self.whole, "lineitem", line)
        early = self._chosen(0.7)
        yield early
        yield {name: {k: r for k, r in rows.items() if k not in early[name]} for name, rows in self.whole.items()}
        yield self._updated(0.15)
        gone = self._gone(more)
        yield gone
        yield {
            name: {k: self.whole[name][k] for k in keys if self.chance.random() < 0.5} for name, keys in gone.items()
        }

    def apply(self, changes: Changes) -> None:
        for name, rows in changes.items():
            for key, row in rows.items():
                if row is None:
                    del self.now[name][key]
                else:
                    self.now[name][key] = row

    def _chosen(self, share: float) -> Changes:
        out = {n: {k: r for k, r in rows.items() if self.chance.random() < share} for n, rows in self.whole.items()}
        return out | {name: dict(self.whole[name]) for name in ("region", "nation")}

    def _updated(self, share: float) -> Changes:
        """Rows with the values of another row of their table beside their own key; nations and regions stay."""
        out: Changes = {}
        for name, table in TABLES.items():
            rows = self.now[name]
            some = [k for k in rows if self.chance.random() < share and name not in ("region", "nation")]
            others = [self.chance.choice(list(rows.values())) for _ in some]
            out[name] = {k: (*k, *other[table.key :]) for k, other in zip(some, others, strict=True)}
        return out

    def _gone(self, more: int) -> Changes:
        out: Changes = {n: {k: None for k in rows if self.chance.random() < 0.1} for n, rows in self.now.items()}
        out["region"], out["nation"] = {}, {}
        passing = range(self.orders + 1, self.orders + more + 1)
        for name in ("orders", "lineitem"):
            out[name] |= {k: None for k in self.now[name] if k[0] in passing}
        return out


def commit(db: penstock.Database, changes: Changes) -> None:
    with db.transaction() as transaction:
        for name, rows in changes.items():
            gone = [k for k, row in rows.items() if row is None]
            if gone:
                names = [c.split()[0] for c in TABLES[name].columns.split(", ")[: TABLES[name].key]]
                keys = [" AND ".join(f"{n} = {v}" for n, v in zip(names, k, strict=True)) for k in gone]
                transaction.execute(f"DELETE FROM {name} WHERE {' OR '.join(keys)}")
        for name, rows in changes.items():
            there = [row for row in rows.values() if row is not None]
            if there:
                transaction.insert(name, there)


def run(
    opener: Opener, spark: SparkSession, folder: Path, seed: int, orders: int, more: int, restarts: bool = False
) -> None:
    """Every commit of the history, checked after those in `CHECKED`; with `restarts` each, before the database is opened anew."""
    db = opener(folder / "db")
    for table in TABLES.values():
        db.execute(table.create())
    views = Maintained(db, QUERIES)
    batch = Batch(spark, {t.name: t.columns for t in TABLES.values()})
    history = History(seed, orders)
    wanted = {}
    for number, changes in enumerate(history.commits(more)):
        commit(db, changes)
        history.apply(changes)
        if number not in CHECKED and not restarts:
            continue
        settle(db)
        batch.load({name: rows.values() for name, rows in history.now.items()})
        wanted = batch.answers(QUERIES)
        views.check(db, wanted)
        if restarts:
            db.close()
            db = opener(folder / "db")
            views.reopened(db)
    empty = [name for name, rows in wanted.items() if not rows or all(v is None for r in rows for v in r)]
    assert not empty


def test_every_query_equals_batch(interpreted: Opener, spark: SparkSession, tmp_path: Path) -> None:
    run(interpreted, spark, tmp_path, seed=4, orders=240, more=30)
