"""Streams on streams: a chain of views equals one batch query over the rows that went in."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from hypothesis import given
from pyspark.sql import SparkSession
from tests.spark.batch_model import Batch, Maintained
from tests.spark.conftest import Opener
from tests.spark.following import Row, settle
from tests.spark.test_generated_windows import few, seeds

CHAIN = {
    "per_id": "SELECT id, region, sum(v) AS v, count(*) AS n FROM {s} GROUP BY id, region",
    "per_region": "SELECT region, avg(v) AS a, min(v) AS lo, max(v) AS hi, count(*) AS n FROM {per_id} GROUP BY region",
    "how_many": "SELECT n, count(*) AS regions FROM {per_region} GROUP BY n",
    "best": "SELECT id, v FROM {per_id} ORDER BY v DESC, id LIMIT 2",
    "beside_best": "SELECT per_id.id, per_id.v, best.v AS b FROM {per_id} LEFT JOIN {best} ON per_id.id = best.id",
    "both": "SELECT region AS a FROM {per_region} UNION ALL SELECT CAST(id AS STRING) AS a FROM {best}",
}
"""Each reads the ones before it by name."""

Trace = tuple[list[list[Row]], list[list[Row]]]
"""Batches before and after a restart."""


def trace_of(seed: int) -> Trace:
    chance = random.Random(seed)

    def batch() -> list[Row]:
        return [
            (chance.randrange(6), chance.choice(["eu", "us"]), chance.randint(-5, 5))
            for _ in range(chance.randint(1, 6))
        ]

    return [batch() for _ in range(chance.randint(2, 3))], [batch() for _ in range(chance.randint(1, 2))]


def flat(name: str) -> str:
    """The whole chain up to a view as one query over `s`."""
    sql = CHAIN[name]
    for inner in CHAIN:
        if "{" + inner + "}" in sql:
            sql = sql.replace("{" + inner + "}", f"({flat(inner)}) AS {inner}")
    return sql.replace("{s}", "s")


def run(opener: Opener, spark: SparkSession, folder: Path, trace: Trace) -> None:
    db = opener(folder)
    db.execute("CREATE SOURCE s (id INT, region STRING, v BIGINT)")
    names = {n: n for n in ["s", *CHAIN]}
    views = Maintained(db, {name: sql.format(**names) for name, sql in CHAIN.items()})
    batch = Batch(spark, {"s": "id INT, region STRING, v BIGINT"})
    whole: list[Row] = []
    for half, batches in enumerate(trace):
        if half:
            # Rows that no query has seen when the database is closed.
            db.insert("s", [(9, "as", 1)])
            whole.append((9, "as", 1))
            db.close()
            db = opener(folder)
            views.reopened(db)
        for new in batches:
            db.insert("s", new)
            whole.extend(new)
            settle(db)
            batch.load({"s": whole})
            views.check(db, batch.answers({name: flat(name) for name in CHAIN}))
    db.close()


def test_a_chain_of_views_equals_one_batch_query(interpreted: Opener, spark: SparkSession) -> None:
    @few
    @given(seeds)
    def check(seed: int) -> None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            run(interpreted, spark, Path(folder), trace_of(seed))

    check()
