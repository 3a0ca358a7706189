"""The cost of a change follows the change, not what is kept: 1,000 rows into a large and into a small view."""

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
WARM_UP = 5


class View:
    """A view with one row for each of `keys` keys."""

    def __init__(self, db: api.Database, name: str, keys: int) -> None:
        self._db = db
        self._source = f"{name}_in"
        self._keys = keys
        self._random = np.random.default_rng(keys)
        db.execute(penstock.SOURCE.format(name=self._source))
        db.execute(
            f"CREATE MATERIALIZED VIEW {name} AS SELECT k, sum(v) AS total, count(*) AS n FROM {name}_in GROUP BY k"
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
        return time.perf_counter() - began


def with_penstock(quick: bool) -> Figures:
    with penstock.opened() as db:
        small = View(db, "small", SMALL)
        large = View(db, "large", 60_000 if quick else 600_000)
        times = [(small.change(), large.change()) for _ in range(WARM_UP + (10 if quick else 30))][WARM_UP:]
    of_small, of_large = (float(np.median(t)) for t in zip(*times, strict=True))
    return {"small_ms": [of_small * 1_000], "large_ms": [of_large * 1_000], "ratio": [of_large / of_small]}


WORK = Work(
    name="diff",
    programs={PENSTOCK: with_penstock},
    rows=(
        Row("1,000-row change into 6,000 keys", "small_ms", "ms", better="less", digits=0),
        Row("1,000-row change into 600,000 keys", "large_ms", "ms", better="less", digits=0),
        Row("1,000-row change, 600,000 : 6,000 keys", "ratio", "×", (AtMost(1.2),), better="less"),
    ),
)
