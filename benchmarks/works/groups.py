"""GROUP BY 10,000 keys, the changelog delivered to a subscriber."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from benchmarks.data import Shape
from benchmarks.engines import laminar, penstock
from benchmarks.rounds import rounds
from benchmarks.work import LAMINAR, PENSTOCK, Against, Figures, Row, Work

KEYS = 10_000
SQL = "SELECT k, sum(v) AS total, count(*) AS n FROM {source} GROUP BY k EMIT CHANGES"


def shape(quick: bool) -> Shape:
    return Shape(1_000_000 if quick else 5_000_000, keys=KEYS)


def net_of(rows: int) -> Callable[[], Callable[[pa.Table], bool]]:
    """Complete when the counts, with their weights, add up to all rows."""

    def start() -> Callable[[pa.Table], bool]:
        counted = 0

        def check(table: pa.Table) -> bool:
            nonlocal counted
            counted += int(np.dot(table["n"].to_numpy(), table["__weight"].to_numpy()))
            return counted == rows

        return check

    return start


def newest_of(rows: int) -> Callable[[], Callable[[pa.Table], bool]]:
    """The same for changes that are told as the new row of each key."""

    def start() -> Callable[[pa.Table], bool]:
        newest = np.zeros(KEYS, np.int64)

        def check(table: pa.Table) -> bool:
            newest[table["k"].to_numpy()] = table["n"].to_numpy()
            return int(newest.sum()) == rows

        return check

    return start


def with_penstock(quick: bool) -> Figures:
    rows = shape(quick)
    with penstock.opened() as db:
        rates = rounds(
            lambda i: penstock.PenstockQuery(db, f"g{i}", SQL), [*rows.batches()], rows.rows, net_of(rows.rows)
        )
    return {"rows_per_s": rates}


def with_laminar(quick: bool) -> Figures:
    rows = shape(quick)
    rates = rounds(lambda i: laminar.LaminarQuery(SQL), [*rows.batches()], rows.rows, newest_of(rows.rows))
    return {"rows_per_s": rates}


WORK = Work(
    name="groups",
    programs={PENSTOCK: with_penstock, LAMINAR: with_laminar},
    rows=(Row("GROUP BY 10,000 keys, EMIT CHANGES", "rows_per_s", "M rows/s", (Against(LAMINAR, 1.5),)),),
)
