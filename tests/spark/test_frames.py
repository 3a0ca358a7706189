"""GROUPS frames and EXCLUDE, which Spark does not have: views and one-shot SELECTs give what DuckDB gives, after every commit."""

from __future__ import annotations

import re

import duckdb
import pytest
from tests.spark.following import SOON_S, bag

import penstock

_CALLS = [
    "sum(n) OVER (PARTITION BY k ORDER BY o GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW)",
    "count(*) OVER (PARTITION BY k ORDER BY o DESC GROUPS BETWEEN CURRENT ROW AND 2 FOLLOWING)",
    "max(n) OVER (PARTITION BY k ORDER BY o GROUPS UNBOUNDED PRECEDING)",
    "sum(n) OVER (PARTITION BY k ORDER BY o GROUPS BETWEEN 2 PRECEDING AND 1 PRECEDING)",
    "sum(n) OVER (PARTITION BY k ORDER BY o GROUPS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING EXCLUDE NO OTHERS)",
    "first_value(id) OVER (PARTITION BY k ORDER BY o, id GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
    "sum(n) OVER (PARTITION BY k ORDER BY o, id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW)",
    "count(*) OVER (PARTITION BY k ORDER BY o RANGE UNBOUNDED PRECEDING EXCLUDE GROUP)",
    "sum(n) OVER (PARTITION BY k ORDER BY o RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE TIES)",
    "sum(n) OVER (PARTITION BY k ORDER BY o ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE GROUP)",
    "count(n) OVER (PARTITION BY k ORDER BY o GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE TIES)",
    "last_value(id) OVER (PARTITION BY k ORDER BY o, id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW)",
    "nth_value(id, 2) OVER (PARTITION BY k ORDER BY o, id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW)",
    "sum(n) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW)",
]
_STEPS = [
    "INSERT INTO t VALUES (1, 'a', 1, 10), (2, 'a', 1, 20), (3, 'a', 2, NULL), (4, 'a', 4, 40), (5, 'b', NULL, 5), (6, 'b', NULL, 6)",
    "INSERT INTO t VALUES (7, 'a', 3, 7), (8, 'a', 2, 8), (9, 'b', 1, 9), (10, NULL, 1, 1)",
    "UPDATE t SET o = 2 WHERE id IN (1, 5)",
    "DELETE FROM t WHERE id IN (2, 3, 9)",
    "DELETE FROM t",
]


def _query(call: str) -> str:
    return f"SELECT id, {call} AS v FROM t"


def _duck(call: str) -> str:
    # Spark takes NULL for the smallest value.
    return _query(re.sub(r"ORDER BY o( DESC)?", lambda m: f"{m[0]} NULLS {'LAST' if m[1] else 'FIRST'}", call))


def test_views_and_selects_are_those_of_duckdb(db: penstock.Database) -> None:
    other = duckdb.connect()
    columns = "(id INT PRIMARY KEY, k {}, o INT, n BIGINT)"
    db.execute(f"CREATE TABLE t {columns.format('STRING')}")
    other.execute(f"CREATE TABLE t {columns.format('VARCHAR')}")
    for i, call in enumerate(_CALLS):
        db.execute(f"CREATE MATERIALIZED VIEW v{i} AS {_query(call)}")
    for step in _STEPS:
        db.execute(step)
        other.execute(step)
        db.flush(timeout=SOON_S)
        for i, call in enumerate(_CALLS):
            wanted = bag(other.execute(_duck(call)).fetchall())
            assert bag(db.sql(f"SELECT * FROM v{i}").fetchall()) == wanted, (call, step)
            if step == _STEPS[2]:
                assert bag(db.sql(_query(call)).fetchall()) == wanted, call
    db.execute(_STEPS[0])
    listed = ", ".join(f"{call} AS v{i}" for i, call in enumerate(_CALLS))
    rows = db.sql(f"SELECT id, {listed} FROM t WHERE id < 7 ORDER BY id DESC").fetchall()
    assert [r[0] for r in rows] == [6, 5, 4, 3, 2, 1] and rows[-1][1:3] == (30, 2)
    told = db.explain(_query(_CALLS[0]))
    assert told.endswith("SELECT: answered by Spark with the operators of a view, because it has a GROUPS frame")
    assert "without ties" in db.explain(f"CREATE MATERIALIZED VIEW w AS {_query(_CALLS[8])}")


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("sum(n) OVER (PARTITION BY k GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW)", "PSK-1019"),
        ("sum(n) OVER (ORDER BY o GROUPS BETWEEN 1.5 PRECEDING AND CURRENT ROW)", "PSK-1012"),
        ("sum(n) OVER (ORDER BY o GROUPS BETWEEN 1 FOLLOWING AND 1 PRECEDING)", "PSK-1012"),
        ("sum(n) OVER (ORDER BY o GROUPS BETWEEN UNBOUNDED FOLLOWING AND CURRENT ROW)", "PSK-1012"),
        ("rank() OVER (ORDER BY o ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES)", "PSK-1012"),
        ("lag(n) OVER (ORDER BY o GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW)", "PSK-1012"),
    ],
)
def test_frames_that_mean_nothing_are_refused(db: penstock.Database, call: str, code: str) -> None:
    db.execute("CREATE TABLE t (id INT, k STRING, o INT, n BIGINT)")
    for statement in (_query(call), f"CREATE MATERIALIZED VIEW v AS {_query(call)}"):
        with pytest.raises(penstock.PenstockError) as refused:
            db.sql(statement)
        assert refused.value.code == code and refused.value.position is not None
