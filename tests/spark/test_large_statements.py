"""Large statements run end to end; beyond what Spark can hold, they are refused."""

from __future__ import annotations

import pytest
from tests.effort import EFFORT
from tests.spark.conftest import Opener
from tests.spark.following import settle

import penstock
from penstock.errors import PenstockError
from penstock.spark.translate import translated


def test_three_thousand_conditions(interpreted: Opener) -> None:
    db = interpreted()
    excluded = " AND ".join(f"id <> {i}" for i in range(3_000))
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
    db.insert("t", [{"id": i, "v": i} for i in range(2_990, 3_010)])
    assert sorted(db.sql(f"SELECT id FROM t WHERE {excluded}").fetchall()) == [(i,) for i in range(3_000, 3_010)]
    # Spark needs half a minute to plan all of them.
    planned = excluded if EFFORT > 1 else " AND ".join(f"id <> {i}" for i in range(2_250, 3_000))
    db.execute(f"CREATE MATERIALIZED VIEW high AS SELECT id FROM t WHERE {planned}")
    settle(db)
    assert sorted(db.sql("SELECT * FROM high").fetchall()) == [(i,) for i in range(3_000, 3_010)]


def test_hundreds_of_conditions_in_other_statements(interpreted: Opener) -> None:
    db = interpreted()
    chosen = " OR ".join(f"id = {i}" for i in range(0, 6_000, 8))
    some = " AND ".join(f"id <> {i}" for i in range(2_500, 3_000))
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
    db.insert("t", [{"id": i, "v": i} for i in range(2_990, 3_010)])
    assert sorted(db.sql(f"SELECT id FROM t WHERE {chosen}").fetchall()) == [(2_992,), (3_000,), (3_008,)]
    db.execute(f"UPDATE t SET v = -1 WHERE {some}")
    db.execute(f"DELETE FROM t WHERE NOT ({some})")
    assert db.sql("SELECT count(*) AS n, max(v) AS v FROM t").fetchall() == [(10, -1)]


def test_nested_expressions(interpreted: Opener) -> None:
    db = interpreted()
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    deep = {
        "a": "abs(" * 190 + "id" + ")" * 190,
        "b": "(" * 190 + "id" + ")" * 190,
        "c": "CASE WHEN id > 0 THEN " * 190 + "id" + " ELSE 0 END" * 190,
        "d": " + ".join(["id"] * 1_000),
    }
    columns = ", ".join(f"{e} AS {n}" for n, e in deep.items())
    db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT {columns} FROM t")
    db.insert("t", {"id": 7})
    settle(db)
    assert db.sql("SELECT * FROM v").fetchall() == [(7, 7, 7, 7_000)]
    assert db.sql(f"SELECT {columns} FROM t").fetchall() == [(7, 7, 7, 7_000)]
    nested = "SELECT id FROM " + "(SELECT id FROM " * 190 + "t" + ") AS q" * 190
    assert db.sql(nested).fetchall() == [(7,)]
    assert "Scan t" in db.explain(f"CREATE MATERIALIZED VIEW w AS {nested}")


def test_sixty_joins(interpreted: Opener) -> None:
    db = interpreted()
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    db.insert("t", [(1,), (2,)])
    joins = " ".join(f"JOIN t AS t{i} ON t{i - 1}.id = t{i}.id" for i in range(1, 61))
    assert sorted(db.sql(f"SELECT t60.id FROM t AS t0 {joins}").fetchall()) == [(1,), (2,)]
    if EFFORT > 1:  # Spark needs a minute to plan it.
        db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT t60.id FROM t AS t0 {joins}")
        db.execute("SET read.timeout_ms = 600000")
        assert sorted(db.sql("SELECT * FROM v").fetchall()) == [(1,), (2,)]


def test_a_stack_overflow_in_spark(first_database: penstock.Database) -> None:
    too_deep = "SELECT " + "- " * 400_000 + "1"
    with pytest.raises(PenstockError) as caught, translated():
        first_database.spark.sql(too_deep).collect()
    assert caught.value.code == "PSK-1020"
    assert first_database.sql("SELECT 1 AS x").fetchall() == [(1,)]
