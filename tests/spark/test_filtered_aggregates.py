"""FILTER with aggregates of which a row that is left out must not take part in the choice."""

from __future__ import annotations

import pytest

import penstock

VIEW = """
CREATE MATERIALIZED VIEW m AS
SELECT g,
       min_by(v, x) FILTER (WHERE id > 1) AS least,
       max_by(v, x) FILTER (WHERE id < 3) AS most,
       first_value(v) FILTER (WHERE id > 1) AS opening,
       last_value(v) FILTER (WHERE id < 3) AS closing,
       any_value(v) FILTER (WHERE id = 2) AS some,
       max_by(v, x) FILTER (WHERE id > 9) AS nothing
FROM t GROUP BY g
"""


def _seen(db: penstock.Database) -> list[tuple[object, ...]]:
    db.flush(timeout=60)
    return db.sql("SELECT * FROM m").fetchall()


def test_over_a_table(db: penstock.Database) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, g INT, v STRING, x INT)")
    db.execute(VIEW)
    for row in [(1, 7, "a", 10), (2, 7, "b", 20), (3, 7, "c", 30)]:
        db.insert("t", [row])
    assert _seen(db) == [(7, "b", "b", "b", "b", "b", None)]
    db.execute("DELETE FROM t WHERE id = 2")
    assert _seen(db) == [(7, "c", "a", "c", "a", None, None)]
    db.insert("t", [(2, 7, None, 40)])
    assert _seen(db) == [(7, "c", None, "c", None, None, None)]


def test_over_a_source(db: penstock.Database) -> None:
    db.execute("CREATE SOURCE t (id INT, g INT, v STRING, x INT)")
    db.execute(VIEW)
    for row in [(1, 7, "a", 10), (2, 7, None, 20), (3, 7, "c", 30)]:
        db.insert("t", [row])
    assert _seen(db) == [(7, None, None, None, None, None, None)]
    db.insert("t", [(2, 7, "d", 5)])
    assert _seen(db) == [(7, "d", None, None, "d", None, None)]


def test_over(db: penstock.Database) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, g INT, v STRING, x INT)")
    db.execute("""
        CREATE MATERIALIZED VIEW m AS
        SELECT id, min_by(v, x) FILTER (WHERE id > 1) OVER (PARTITION BY g) AS least,
               count(*) FILTER (WHERE id > 1) OVER (PARTITION BY g) AS n, sum(x) FILTER (WHERE id > 1) OVER (ORDER BY id) AS total
        FROM t
    """)
    db.insert("t", [(1, 7, "a", 10), (2, 7, "b", 20), (3, 7, "c", 30)])
    assert sorted(_seen(db)) == [(1, "b", 2, None), (2, "b", 2, 20), (3, "b", 2, 50)]


@pytest.mark.parametrize("call", ["row_number()", "lag(v)", "first_value(v)", "any_value(v)"])
def test_over_without_an_aggregate(db: penstock.Database, call: str) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, v STRING)")
    with pytest.raises(penstock.PenstockError, match="FILTER cannot be used with") as refused:
        db.execute(f"CREATE MATERIALIZED VIEW m AS SELECT {call} FILTER (WHERE id > 1) OVER (ORDER BY id) AS w FROM t")
    assert refused.value.code == "PSK-1012"
