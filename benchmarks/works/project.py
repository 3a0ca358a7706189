"""Filter and projection: half of the rows come out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.data import Shape
from benchmarks.engines import laminar, penstock, spark
from benchmarks.rounds import rounds
from benchmarks.work import LAMINAR, PENSTOCK, SPARK, Against, AtLeast, Figures, Row, Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LIMIT = 500
SQL = f"SELECT k, v * 2 AS doubled, ts FROM {{source}} WHERE v < {LIMIT}"


def shape(quick: bool) -> Shape:
    return Shape(1_000_000 if quick else 5_000_000)


def kept(rows: Shape) -> Callable[[], Callable[[pa.Table], bool]]:
    expected = sum(int((rows.columns(i)[1] < LIMIT).sum()) for i in range(rows.count))

    def start() -> Callable[[pa.Table], bool]:
        seen = 0

        def check(table: pa.Table) -> bool:
            nonlocal seen
            seen += int(table.num_rows)
            if seen > expected:
                raise AssertionError(f"{seen} rows of {expected}")
            return seen == expected

        return check

    return start


def halve(frame: DataFrame) -> DataFrame:
    return frame.where(f"v < {LIMIT}").selectExpr("k", "v * 2 AS doubled", "ts")


def with_penstock(quick: bool) -> Figures:
    rows = shape(quick)
    with penstock.opened() as db:
        rates = rounds(lambda i: penstock.PenstockQuery(db, f"p{i}", SQL), [*rows.batches()], rows.rows, kept(rows))
    return {"rows_per_s": rates}


def with_spark(quick: bool) -> Figures:
    rows = shape(quick)
    with spark.opened() as (session, folder):
        rates = rounds(
            lambda i: spark.SparkQuery(session, folder, f"p{i}", halve), [*rows.batches()], rows.rows, kept(rows)
        )
    return {"rows_per_s": rates}


def with_laminar(quick: bool) -> Figures:
    rows = shape(quick)
    rates = rounds(lambda i: laminar.LaminarQuery(SQL), [*rows.batches()], rows.rows, kept(rows))
    return {"rows_per_s": rates}


WORK = Work(
    name="project",
    programs={PENSTOCK: with_penstock, SPARK: with_spark, LAMINAR: with_laminar},
    rows=(Row("filter and projection", "rows_per_s", "M rows/s", (AtLeast(8e6), Against(SPARK, 0.95))),),
)
