"""What a change costs follows the change, operator by operator: 1,000 rows into 600,000 and into 6,000; and for 40 views at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.engines import penstock
from benchmarks.work import PENSTOCK, AtMost, Figures, Row, Work

if TYPE_CHECKING:
    import penstock as api

DIFF = 1_000
SMALL = 6_000
LARGE = 600_000
WARM_UP = 6
BATCH = 100_000
TOP = 8
WAIT_S = 120.0
TOGETHER = 40


@dataclass(frozen=True)
class Operator:
    """A view over the tables a and b, and what its cost may be at 100 times the state."""

    name: str
    title: str
    select: str
    bar: float = 1.3
    joins: bool = False
    first: bool = False
    """Each change also takes away the rows that stand first and last by `v`."""


OPERATORS = (
    Operator("filter", "filter", "SELECT id, v FROM {a} WHERE v % 2 = 0"),
    Operator("join", "join", "SELECT a.id, a.v, b.w FROM {a} a JOIN {b} b ON a.k = b.id", joins=True),
    Operator("left", "left join", "SELECT a.id, a.v, b.w FROM {a} a LEFT JOIN {b} b ON a.k = b.id", joins=True),
    Operator("sums", "COUNT, SUM, AVG", "SELECT k, count(*) AS n, sum(v) AS total, avg(v) AS mean FROM {a} GROUP BY k"),
    Operator("distinct", "DISTINCT", "SELECT DISTINCT k, v % 10 AS d FROM {a}"),
    Operator("semi", "semi join", "SELECT a.id, a.v FROM {a} a LEFT SEMI JOIN {b} b ON a.k = b.id", joins=True),
    Operator("anti", "anti join", "SELECT a.id, a.v FROM {a} a LEFT ANTI JOIN {b} b ON a.k = b.id", joins=True),
    Operator("extrema", "MIN, MAX, deleting them", "SELECT min(v) AS low, max(v) AS high FROM {a}", 2.0, first=True),
    Operator("top", "top 8, deleting from it", f"SELECT id, v FROM {{a}} ORDER BY v DESC LIMIT {TOP}", 2.0, first=True),
)


@dataclass(frozen=True)
class Change:
    """What one commit does."""

    table: str
    deleted: pa.RecordBatch
    restored: pa.RecordBatch
    updates: str
    updated: pa.RecordBatch

    def commit(self, db: api.Database) -> None:
        with db.transaction() as commit:
            commit.delete(self.table, self.deleted)
            if self.restored.num_rows:
                commit.insert(self.table, self.restored)
            commit.insert(self.updates, self.updated)


class Tables:
    """Two keyed tables of `size` rows, a (id, k, v) and b (id, w). Half of the `k` of a are an `id` of b."""

    def __init__(self, db: api.Database, name: str, size: int) -> None:
        self._db = db
        self.names = {"a": f"{name}_a", "b": f"{name}_b"}
        self._random = np.random.default_rng(size)
        self._size = size
        db.execute(f"CREATE TABLE {name}_a (id BIGINT, k BIGINT, v BIGINT, PRIMARY KEY (id))")
        db.execute(f"CREATE TABLE {name}_b (id BIGINT, w BIGINT, PRIMARY KEY (id))")
        self._k = self._random.permutation(2 * size)[:size]
        # No two rows of a have the same `v`, so that every row that stands first is deleted alone.
        self._v = self._random.permutation(size)
        self._w = self._random.integers(0, 1_000, size)
        self._gone: dict[str, np.ndarray] = {}
        for first in range(0, size, BATCH):
            ids = np.arange(first, min(size, first + BATCH))
            db.insert(self.names["a"], self._a(ids))
            db.insert(self.names["b"], self._b(ids))

    def change(self, operator: Operator) -> Change:
        """`DIFF` weighted rows. Half of them update rows of a; the others take rows away and put those back that went last time."""
        part = DIFF // 4
        table = "b" if operator.joins else "a"
        gone = self._gone.get(table, np.empty(0, np.int64))
        chosen = self._random.choice(self._size, 3 * part, replace=False)
        if operator.first:
            present = np.ones(self._size, bool)
            present[gone] = False
            by_value = np.flatnonzero(present)[np.argsort(self._v[present])]
            ends = np.concatenate([by_value[:TOP], by_value[-TOP:]])
            chosen = np.concatenate([ends, chosen[~np.isin(chosen, ends)]])
        chosen = chosen[~np.isin(chosen, gone)]
        leaving, changing = chosen[:part], chosen[part : 2 * part]
        rows = self._a if table == "a" else self._b
        deleted, restored = rows(leaving), rows(gone)
        self._gone[table] = leaving
        if not operator.first:
            self._v[changing] = self._random.integers(0, 1_000_000, len(changing))
        self._k[changing] = self._random.integers(0, 2 * self._size, len(changing))
        return Change(self.names[table], deleted, restored, self.names["a"], self._a(changing))

    def _a(self, ids: np.ndarray) -> pa.RecordBatch:
        return pa.record_batch({"id": ids, "k": self._k[ids], "v": self._v[ids]})

    def _b(self, ids: np.ndarray) -> pa.RecordBatch:
        return pa.record_batch({"id": ids, "w": self._w[ids]})


class View:
    """A view over such tables while it is measured."""

    def __init__(self, db: api.Database, name: str, tables: Tables, operator: Operator) -> None:
        self._db = db
        self._name = name
        self._tables = tables
        self._operator = operator
        self._select = operator.select.format(**tables.names)
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {self._select}")
        db.flush(timeout=WAIT_S)

    def change(self) -> float:
        """Seconds from the beginning of the commit until the view has it."""
        change = self._tables.change(self._operator)
        began = time.perf_counter()
        change.commit(self._db)
        self._db.flush(timeout=WAIT_S)
        return time.perf_counter() - began

    def verify(self) -> None:
        """The view must be what its query gives now."""
        columns = [str(c) for c in self._db.sql(f"SELECT * FROM {self._name} LIMIT 0").arrow().column_names]
        totals = ", ".join(f"sum(`{c}`)" for c in columns)
        have = self._db.sql(f"SELECT count(*), {totals} FROM {self._name}").fetchall()
        want = self._db.sql(f"SELECT count(*), {totals} FROM ({self._select})").fetchall()
        if not all(np.isclose(float(x or 0), float(y or 0)) for x, y in zip(have[0], want[0], strict=True)):
            raise AssertionError(f"{self._operator.name}: {have} instead of {want}")


@contextmanager
def views(db: api.Database, tables: list[Tables], operator: Operator) -> Iterator[list[View]]:
    names = [f"{operator.name}_{number}" for number in range(len(tables))]
    yield [View(db, name, of, operator) for name, of in zip(names, tables, strict=True)]
    for name in names:
        db.execute(f"DROP MATERIALIZED VIEW {name}")


def with_penstock(quick: bool) -> Figures:
    figures: Figures = {}
    with penstock.opened() as db:
        tables = [Tables(db, "small", SMALL), Tables(db, "large", LARGE // 10 if quick else LARGE)]
        for operator in OPERATORS:
            with views(db, tables, operator) as pair:
                rounds = range(WARM_UP + (4 if quick else 20))
                times = np.array([[view.change() for view in pair] for _ in rounds])[WARM_UP:]
                for view in pair:
                    view.verify()
            small, large = np.median(times, axis=0)
            figures[f"{operator.name}_ms"] = [float(large) * 1_000]
            figures[operator.name] = [float(large / small)]
    small, large = together(quick)
    figures["together_ms"] = [large * 1_000]
    figures["together"] = [large / small]
    return figures


def together(quick: bool) -> tuple[float, float]:
    """Seconds until 40 views, of all operators, have a change, over few rows and over 100 times as many."""
    with penstock.opened() as db:
        pairs = []
        for name, size in (("few", SMALL // 3), ("many", SMALL if quick else LARGE // 3)):
            tables = Tables(db, name, size)
            # The change of a view with joins is of both tables, so that every view has one.
            views = [
                View(db, f"{name}_{number}", tables, OPERATORS[number % len(OPERATORS)])
                for number in sorted(range(TOGETHER), key=lambda number: not OPERATORS[number % len(OPERATORS)].joins)
            ]
            pairs.append(views)
        rounds = range(WARM_UP + (4 if quick else 20))
        times = np.array([[views[0].change() for views in pairs] for _ in rounds])[WARM_UP:]
        for views in pairs:
            for view in views[-len(OPERATORS) :]:
                view.verify()
    small, large = np.median(times, axis=0)
    return float(small), float(large)


def _rows() -> Iterator[Row]:
    for operator in OPERATORS:
        yield Row(f"1,000 rows into 600,000: {operator.title}", f"{operator.name}_ms", "ms", better="less", digits=0)
        yield Row(f"600,000 : 6,000 rows: {operator.title}", operator.name, "×", (AtMost(operator.bar),), better="less")
    yield Row("1,000 rows into 200,000: 40 views of all operators", "together_ms", "ms", better="less", digits=0)
    yield Row("200,000 : 2,000 rows: 40 views of all operators", "together", "×", (AtMost(1.3),), better="less")


WORK = Work(name="ratios", programs={PENSTOCK: with_penstock}, rows=tuple(_rows()), repeats=1, timeout_s=600.0)
