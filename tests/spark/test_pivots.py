"""PIVOT and UNPIVOT in views give what Spark's own give in a one-shot SELECT, after every commit."""

from __future__ import annotations

import pytest

import penstock
from penstock.errors import PenstockError

_QUERIES = {
    "one": "SELECT * FROM t PIVOT (sum(n) AS s FOR q IN ('a', 'b' AS second, NULL))",
    "several": "SELECT * FROM (SELECT k, q, n FROM t) PIVOT (sum(n) AS s, count(*), max(n) FILTER (WHERE n > 1) FOR q IN ('a', 'b'))",
    "pairs": "SELECT * FROM (SELECT k, q, n, d FROM t) PIVOT (count(d) FOR (q, n) IN (('a', 1) AS a1, ('b', -2)))",
    "numbers": "SELECT p.* FROM (SELECT q, n FROM t) AS x PIVOT (count(DISTINCT q), min(q) AS least FOR n IN (1, -2, 3)) AS p",
    "renamed": "SELECT c2, c1 FROM (SELECT k, q, d FROM t) PIVOT (avg(d) FOR q IN ('a')) AS p (c1, c2)",
    "joined": "SELECT p.k, p.a, t.n FROM (SELECT k, q, n FROM t) PIVOT (array_agg(n) FOR q IN ('a')) AS p JOIN t ON t.k = p.k",
    "long": "SELECT * FROM (SELECT k, n, d FROM t) UNPIVOT (v FOR name IN (n, d AS dd))",
    "nulls": "SELECT u.name, u.v FROM t UNPIVOT INCLUDE NULLS (v FOR name IN (q, k)) AS u WHERE u.name = 'q'",
    "wide": "SELECT * FROM (SELECT k, n, d, q FROM t) UNPIVOT ((x, y) FOR name IN ((n, q), (d, k) AS other))",
}


def _rows(db: penstock.Database, sql: str) -> tuple[list[str], list[str]]:
    found = db.sql(sql).arrow()
    return found.column_names, sorted(map(repr, zip(*(c.to_pylist() for c in found.columns), strict=True)))


def test_views_equal_spark(db: penstock.Database) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, k STRING, q STRING, n INT, d DOUBLE)")
    for name, query in _QUERIES.items():
        db.execute(f"CREATE MATERIALIZED VIEW v_{name} AS {query}")
    for change in (
        "INSERT INTO t VALUES (1, 'x', 'a', 1, 0.5), (2, 'x', 'a', 2, NULL), (3, 'x', 'b', -2, 1.5), (4, 'y', 'c', 9, 2.5)",
        "INSERT INTO t VALUES (5, 'y', NULL, 3, NULL), (6, NULL, 'a', NULL, 3.5); DELETE FROM t WHERE id = 3",
        "UPDATE t SET q = 'b' WHERE q = 'a'",
        "DELETE FROM t",
    ):
        db.execute(f"{change}; FLUSH")
        for name, query in _QUERIES.items():
            assert _rows(db, f"SELECT * FROM v_{name}") == _rows(db, query), (name, change)


def test_refusals(db: penstock.Database) -> None:
    db.execute("CREATE TABLE t (k STRING, q STRING, n INT)")
    for query, code in [
        ("SELECT * FROM t JOIN t AS z ON t.k = z.k PIVOT (sum(n) FOR q IN ('a'))", "PSK-1012"),
        ("SELECT * FROM t PIVOT (sum(n) FOR q IN (DATE '2024-01-01'))", "PSK-1012"),
        ("SELECT * FROM t PIVOT (sum(n) FOR (q, k) IN ('a'))", "PSK-1016"),
        ("SELECT * FROM t PIVOT (sum(m) FOR q IN ('a'))", "PSK-1004"),
        ("SELECT * FROM t UNPIVOT (v FOR name IN (q, n))", "PSK-1007"),
        ("SELECT * FROM t UNPIVOT (v FOR name IN ((q, n)))", "PSK-1016"),
        ("SELECT * FROM (SELECT upper(q) AS q, n FROM t) UNPIVOT (v FOR name IN (q, n))", "PSK-1007"),
    ]:
        with pytest.raises(PenstockError) as caught:
            db.execute(f"CREATE MATERIALIZED VIEW v AS {query}")
        assert caught.value.code == code, (query, caught.value)
        assert caught.value.position is not None, query
