"""A one-second tumbling window by key, from the first insert to the last result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.data import Shape
from benchmarks.engines import laminar, penstock, spark
from benchmarks.rounds import rounds
from benchmarks.work import LAMINAR, PENSTOCK, SPARK, Against, Figures, Row, Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SQL = (
    "SELECT k, window_start, sum(v) AS total, count(*) AS n FROM {source} "
    "GROUP BY k, TUMBLE(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE"
)
# It gives no rows when `window_start` is selected; the call itself brings the bounds.
LAMINAR_SQL = SQL.replace("window_start", "TUMBLE(ts, INTERVAL '1' SECOND) AS bounds")
# Without the bounds it takes a faster path; nobody can tell then which window a result is of.
LAMINAR_BARE_SQL = SQL.replace("window_start, ", "")


def shape(quick: bool) -> Shape:
    return Shape(1_000_000 if quick else 5_000_000)


def all_rows(rows: int) -> Callable[[], Callable[[pa.Table], bool]]:
    """Complete when the counts of the closed windows add up to all rows; more than that is wrong."""

    def start() -> Callable[[pa.Table], bool]:
        counted = 0

        def check(table: pa.Table) -> bool:
            nonlocal counted
            counted += pc.sum(table["n"]).as_py() or 0
            if counted > rows:
                raise AssertionError(f"{counted} rows counted of {rows}")
            return counted == rows

        return check

    return start


def by_window(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    windows = frame.withWatermark("ts", "1 second").groupBy("k", f.window("ts", "1 second"))
    totals = windows.agg(f.sum("v").alias("total"), f.count("*").alias("n"))
    return totals.select("k", f.col("window.start").alias("window_start"), "total", "n")


def with_penstock(quick: bool) -> Figures:
    rows = shape(quick)
    with penstock.opened() as db:
        rates = rounds(
            lambda i: penstock.PenstockQuery(db, f"w{i}", SQL),
            [*rows.batches(), rows.last()],
            rows.rows,
            all_rows(rows.rows),
        )
    return {"rows_per_s": rates}


def with_spark(quick: bool) -> Figures:
    rows = shape(quick)
    with spark.opened() as (session, folder):
        rates = rounds(
            lambda i: spark.SparkQuery(session, folder, f"w{i}", by_window),
            [*rows.batches(), rows.last()],
            rows.rows,
            all_rows(rows.rows),
        )
    return {"rows_per_s": rates}


def with_laminar(quick: bool) -> Figures:
    rows = shape(quick)
    batches = [*rows.batches(), rows.last()]
    return {
        "rows_per_s": rounds(lambda i: laminar.LaminarQuery(LAMINAR_SQL), batches, rows.rows, all_rows(rows.rows)),
        "bare_rows_per_s": rounds(
            lambda i: laminar.LaminarQuery(LAMINAR_BARE_SQL), batches, rows.rows, all_rows(rows.rows)
        ),
    }


WORK = Work(
    name="window",
    programs={PENSTOCK: with_penstock, SPARK: with_spark, LAMINAR: with_laminar},
    rows=(
        Row("1 s window by 100 keys", "rows_per_s", "M rows/s", (Against(SPARK, 1.2), Against(LAMINAR, 1.5))),
        Row("the same, results without window bounds", "bare_rows_per_s", "M rows/s"),
    ),
)
