"""Conditions and recursive steps that use a value twice: Spark computes it once, in a projection of its own."""

from __future__ import annotations

import penstock

TABLES = """
CREATE TABLE a (id BIGINT PRIMARY KEY, k BIGINT, x DOUBLE);
CREATE TABLE b (id BIGINT PRIMARY KEY, k BIGINT, y DOUBLE);
INSERT INTO a VALUES (1, 1, 1.0), (2, 1, 5.0), (3, 2, 3.0);
INSERT INTO b VALUES (1, 1, 2.0), (2, 2, 4.0), (3, 2, 9.0);
"""


def test_a_join_condition_with_between_over_both_sides(db: penstock.Database) -> None:
    db.execute(TABLES)
    select = "SELECT a.id AS a, b.id AS b FROM a JOIN b ON a.k = b.k AND CASE WHEN a.x < b.y THEN a.x + b.y ELSE b.y END BETWEEN 2.5 AND 8.0"
    db.execute(f"CREATE MATERIALIZED VIEW j AS {select}; FLUSH")
    assert sorted(db.sql("SELECT a, b FROM j").fetchall()) == sorted(db.sql(select).fetchall()) == [(1, 1), (3, 2)]
    db.execute("UPDATE a SET x = 1.0 WHERE id = 2; FLUSH")
    assert sorted(db.sql("SELECT a, b FROM j").fetchall()) == [(1, 1), (2, 1), (3, 2)]


def test_a_recursive_step_with_between(db: penstock.Database) -> None:
    db.execute("""
        CREATE TABLE e (f BIGINT, t BIGINT, PRIMARY KEY (f, t));
        INSERT INTO e VALUES (1, 2), (2, 3), (3, 4), (4, 5);
        CREATE MATERIALIZED VIEW r AS
          WITH RECURSIVE reach (n, cost) AS (
            SELECT 1L, 0L
            UNION
            SELECT e.t, reach.cost + e.t FROM reach JOIN e ON e.f = reach.n
            WHERE CASE WHEN e.t > reach.n THEN reach.cost + e.t ELSE 0L END BETWEEN 1 AND 9
          )
          SELECT n, cost FROM reach;
        FLUSH;
    """)
    assert sorted(db.sql("SELECT n, cost FROM r").fetchall()) == [(1, 0), (2, 2), (3, 5), (4, 9)]
