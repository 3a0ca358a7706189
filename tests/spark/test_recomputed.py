"""Aggregates without an incremental form: a view has after every commit what Spark computes from all rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import CONFIG, opening
from tests.spark.following import SOON_S

import penstock
from penstock.plan.functions import AGGREGATES, Path

CALLS = [
    "skewness(x)", "kurtosis(x)", "kurtosis(x) FILTER (WHERE n > 1)", "skewness(DISTINCT x)", "regr_slope(x, n)", "regr_intercept(x, n)",
    "regr_count(x, n)", "regr_r2(x, n)", "regr_avgx(x, n)", "regr_avgy(x, n)", "regr_sxx(x, n)", "regr_sxy(x, n)", "regr_syy(x, n)",
    "histogram_numeric(id, 20)", "hex(count_min_sketch(n, 0.5d, 0.5d, 1))", "hll_sketch_estimate(hll_sketch_agg(s))", "max_by(s, n, 2)",
    "theta_sketch_estimate(theta_sketch_agg(n))", "hex(bitmap_construct_agg(n % 32000))",
    "mode(s, true)", "percentile(id, 0.5D, id)", "kurtosis(x + n) * 2",
]  # fmt: skip
STEPS = [
    "INSERT INTO t VALUES (1, 'a', 1, 1.5D, 'p'), (2, 'a', 2, 2.5D, 'q'), (3, 'b', 3, 7.0D, 'q'), (4, 'a', 5, -3.0D, 'r'), (5, 'b', 8, 0.5D, 'p')",
    "INSERT INTO t VALUES (6, 'a', 13, 4.0D, 'p'), (7, 'b', 21, 1.0D, 'r'), (8, 'c', 2, 9.0D, NULL), (9, 'a', NULL, NULL, 'p')",
    "UPDATE t SET x = x + 1, n = n + 1 WHERE id IN (1, 3, 7)",
    "DELETE FROM t WHERE id IN (2, 5, 8)",
    "UPDATE t SET g = 'b' WHERE id = 6",
]


@pytest.fixture(scope="module")
def db(first_database: penstock.Database) -> Iterator[penstock.Database]:
    with opening(CONFIG) as opener:
        yield opener()


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else float(f"{value:.9g}")
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    return [_rounded(v) for v in value] if isinstance(value, list) else value


def _rows(db: penstock.Database, sql: str) -> list[Any]:
    return sorted(([_rounded(v) for v in row] for row in db.sql(sql).fetchall()), key=lambda r: str(r[0]))


def test_each_is_what_spark_computes_after_every_commit(db: penstock.Database) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, g STRING, n INT, x DOUBLE, s STRING)")
    chosen = ", ".join(f"{c} AS c{i}" for i, c in enumerate(CALLS))
    grouped = f"SELECT g, {chosen} FROM t GROUP BY g"
    total = (
        "SELECT 1 AS one, skewness(x) AS a, regr_count(x, n) AS b, regr_slope(x, n) AS c, max_by(s, n, 2) AS d FROM t"
    )
    db.execute(f"CREATE MATERIALIZED VIEW by_g AS {grouped}")
    db.execute(f"CREATE MATERIALIZED VIEW whole AS {total}")
    for step in STEPS:
        db.execute(step)
        db.flush(timeout=SOON_S)
        assert _rows(db, "SELECT * FROM by_g") == _rows(db, grouped), step
        assert _rows(db, "SELECT * FROM whole") == _rows(db, total), step


def test_explain_says_so(db: penstock.Database) -> None:
    db.execute("CREATE TABLE u (g STRING, x DOUBLE)")
    told = db.explain("CREATE MATERIALIZED VIEW v AS SELECT g, kurtosis(x) AS k FROM u GROUP BY g")
    assert "the values of kurtosis (recomputed by Spark); O(group)" in told
    assert "job: shared by keyed queries on u" in told


def test_a_group_that_cannot_be_computed_is_an_error_of_its_rows(db: penstock.Database) -> None:
    db.execute("CREATE TABLE w (g STRING, x STRING)")
    db.execute("CREATE MATERIALIZED VIEW e AS SELECT g, kurtosis(x) AS k FROM w GROUP BY g")
    db.execute("INSERT INTO w VALUES ('a', '1'), ('a', '2'), ('b', 'no number')")
    db.flush(timeout=SOON_S)
    with pytest.raises(penstock.PenstockError, match="PSK-7007"):
        db.sql("SELECT * FROM e")
    db.execute("DELETE FROM w WHERE g = 'b'")
    db.flush(timeout=SOON_S)
    assert _rows(db, "SELECT * FROM e") == _rows(db, "SELECT g, kurtosis(x) FROM w GROUP BY g")


def test_an_aggregate_of_the_user_is_a_function_of_all_values(db: penstock.Database) -> None:
    db.register_function(lambda values: float(sum(v * v for v in values)), "squares", returns="double")
    db.execute("CREATE TABLE own (g STRING, n INT)")
    grouped = "SELECT g, squares(array_agg(n)) AS s FROM own GROUP BY g"
    db.execute(f"CREATE MATERIALIZED VIEW squared AS {grouped}")
    for step in (
        "INSERT INTO own VALUES ('a', 1), ('a', 2), ('b', 3)",
        "DELETE FROM own WHERE n = 2",
        "UPDATE own SET g = 'a' WHERE n = 3",
    ):
        db.execute(step)
        db.flush(timeout=SOON_S)
        assert _rows(db, "SELECT * FROM squared") == _rows(db, grouped), step
    assert _rows(db, "SELECT * FROM squared") == [["a", 10.0]]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("SELECT kll_sketch_agg_bigint(n) AS k FROM t", "PSK-1012"),
        ("SELECT kurtosis(x) OVER (PARTITION BY g) AS k FROM t", "PSK-1012"),
        ("SELECT histogram_numeric(x, n) AS k FROM t", "PSK-1007"),
    ],
)
def test_refusals(db: penstock.Database, query: str, code: str) -> None:
    with pytest.raises(penstock.PenstockError) as refused:
        db.execute(f"CREATE MATERIALIZED VIEW r AS {query}")
    assert refused.value.code == code and refused.value.position is not None


def test_every_aggregate_of_spark_is_known(spark: SparkSession) -> None:
    registry: Any = spark.newSession()._jsparkSession.sessionState().functionRegistry()
    names = registry.listFunction().iterator()
    found, known = set(), set()
    while names.hasNext():
        name = names.next()
        known.add(name.funcName())
        if registry.lookupFunction(name).get().getGroup() == "agg_funcs":
            found.add(name.funcName())
    other = {"grouping", "grouping_id", "measure"}
    names = {f.name: {f.name, *f.aliases} for f in AGGREGATES.values()}
    assert found - other <= set().union(*names.values())
    assert known >= {f.name for f in AGGREGATES.values() if f.path in (Path.RECOMPUTED, Path.REFUSED)}
