"""The cost of a change follows the change, not what is kept: 1,000 rows into a large and into a small view, and into 40 of each that share a job."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.data import START_MS, record_batch
from benchmarks.engines import penstock
from benchmarks.work import PENSTOCK, AtMost, Figures, Row, Work

if TYPE_CHECKING:
    import penstock as api

DIFF = 1_000
SMALL = 6_000
TOGETHER = 40
WARM_UP = 5


class View:
    """A view with one row for each of `keys` keys, and `others` like it on the same source."""

    def __init__(self, db: api.Database, name: str, keys: int, others: int = 0) -> None:
        self._db = db
        self._source = f"{name}_in"
        self._keys = keys
        self._random = np.random.default_rng(keys)
        db.execute(penstock.SOURCE.format(name=self._source))
        db.execute(
            f"CREATE MATERIALIZED VIEW {name} AS SELECT k, sum(v) AS total, count(*) AS n FROM {name}_in GROUP BY k"
        )
        for number in range(others):
            db.execute(
                f"CREATE MATERIALIZED VIEW {name}_{number} AS SELECT k, sum(v + {number}) AS total FROM {name}_in GROUP BY k"
            )
        for first in range(0, keys, 100_000):
            db.insert(self._source, self._rows(np.arange(first, min(keys, first + 100_000))))
        db.flush(timeout=120)
        self._changes = db.subscribe(name)

    def _rows(self, keys: np.ndarray) -> pa.RecordBatch:
        return record_batch(keys, keys % 1_000, np.full(len(keys), START_MS))

    def change(self) -> float:
        """Seconds until a subscriber has the change of `DIFF` groups."""
        rows = self._rows(self._random.choice(self._keys, DIFF, replace=False))
        began = time.perf_counter()
        self._db.insert(self._source, rows)
        seen = 0
        while seen < 2 * DIFF:
            change = self._changes.next(30.0)
            if change is None:
                raise TimeoutError(f"{seen} of {2 * DIFF} changes")
            seen += len(change)
        # The others have it, too.
        self._db.flush(timeout=30.0)
        return time.perf_counter() - began


def medians(small: View, large: View, rounds: int) -> tuple[float, float]:
    """In milliseconds."""
    times = [(small.change(), large.change()) for _ in range(WARM_UP + rounds)][WARM_UP:]
    of_small, of_large = (float(np.median(t)) * 1_000 for t in zip(*times, strict=True))
    return of_small, of_large


def with_penstock(quick: bool) -> Figures:
    rounds = 10 if quick else 30
    with penstock.opened() as db:
        small, large = medians(View(db, "small", SMALL), View(db, "large", 60_000 if quick else 600_000), rounds)
    with penstock.opened() as db:
        views = [
            View(db, name, keys, TOGETHER - 1)
            for name, keys in (("few", DIFF), ("many", 20_000 if quick else 100 * DIFF))
        ]
        few, many = medians(views[0], views[1], rounds)
    return {
        "small_ms": [small],
        "large_ms": [large],
        "ratio": [large / small],
        "many_ms": [many],
        "together": [many / few],
    }


WORK = Work(
    name="diff",
    programs={PENSTOCK: with_penstock},
    rows=(
        Row("1,000-row change into 6,000 keys", "small_ms", "ms", better="less", digits=0),
        Row("1,000-row change into 600,000 keys", "large_ms", "ms", better="less", digits=0),
        Row("1,000-row change, 600,000 : 6,000 keys", "ratio", "×", (AtMost(1.2),), better="less"),
        Row("1,000-row change into 40 views of 100,000 keys", "many_ms", "ms", better="less", digits=0),
        Row("the same, 100,000 : 1,000 keys", "together", "×", (AtMost(1.2),), better="less"),
    ),
)
