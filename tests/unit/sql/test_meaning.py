"""A plan means what its SQL says: both are run by DuckDB, over tables with NULLs, duplicates and gaps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import duckdb
import pytest
from tests.unit.sql.conftest import Catalog
from tests.unit.sql.plan_sql import duckdb_sql

DDL = """
CREATE TABLE t (id INT, k INT, x INT, PRIMARY KEY (id));
CREATE TABLE u (id INT, k INT, v INT, PRIMARY KEY (id));
CREATE TABLE e (id INT, src INT, dst INT, PRIMARY KEY (id));
"""
ROWS = [
    "INSERT INTO t VALUES (1, 1, 10), (2, 1, 20), (3, 2, NULL), (4, NULL, 10), (5, 3, 30), (6, 2, 5), (7, 9, NULL)",
    "INSERT INTO u VALUES (1, 1, 10), (2, 2, 20), (3, 2, 5), (4, 1, NULL), (5, NULL, 30), (6, 3, 30), (7, 3, 31), (8, 4, 1)",
    "INSERT INTO e VALUES (1, 0, 1), (2, 1, 2), (3, 2, 0), (4, 2, 3), (5, 3, NULL), (6, 3, 4), (7, 1, 2)",
]
QUERIES = """
SELECT id, x IN (SELECT v FROM u) AS a, x NOT IN (SELECT v FROM u WHERE v IS NOT NULL) AS b FROM t
SELECT id, x IN (SELECT v FROM u WHERE false) AS a, x NOT IN (SELECT v FROM u WHERE u.k = t.k) AS b FROM t
SELECT id, (k, x) IN (SELECT k, v FROM u) AS a, (k, x) NOT IN (SELECT k, v FROM u WHERE v > 7) AS b FROM t
SELECT id, x = ANY (SELECT v FROM u) AS a, x <> ALL (SELECT v FROM u WHERE u.k = t.k) AS b, x >= ALL (SELECT v FROM u WHERE v < 20) AS c FROM t
SELECT id, x < ANY (SELECT v FROM u WHERE u.k <> t.k) AS a, NOT (x > ALL (SELECT v FROM u WHERE u.k = t.k)) AS b FROM t
SELECT id FROM t WHERE x IN (SELECT v FROM u) OR EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.v > t.x)
SELECT id FROM t WHERE NOT (x IN (SELECT v FROM u WHERE u.k = t.k) OR k = 9)
SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.v > t.x) AND x NOT IN (SELECT v FROM u WHERE u.k = t.k AND u.id > 1)
SELECT id, CASE WHEN EXISTS (SELECT 1 FROM u WHERE u.k = t.k) THEN 'y' WHEN x IN (SELECT v FROM u) THEN 'z' ELSE 'n' END AS c FROM t
SELECT k, count(*) AS n FROM t GROUP BY k HAVING sum(x) IN (SELECT v FROM u) OR NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k)
SELECT k, max(x) NOT IN (SELECT v FROM u WHERE u.k = t.k) AS a, sum(CASE WHEN x IN (SELECT v FROM u) THEN 1 ELSE 0 END) AS n FROM t GROUP BY k
SELECT k, count(*) FILTER (WHERE EXISTS (SELECT 1 FROM u WHERE u.v = t.x)) AS n FROM t GROUP BY k
SELECT id FROM t WHERE EXISTS (SELECT count(*) FROM u WHERE u.k = t.k HAVING count(*) > 1)
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k GROUP BY u.v HAVING count(*) >= t.k)
SELECT id, (SELECT count(*) FROM u WHERE u.k = t.k) AS a, (SELECT count(*) + 1 FROM u WHERE u.k = t.k) AS b FROM t
SELECT id, (SELECT coalesce(max(v), -1) FROM u WHERE u.k = t.k) AS a, (SELECT 7 FROM u WHERE u.k = t.k HAVING count(*) = 0) AS b FROM t
SELECT id, (SELECT count(v) FROM u WHERE u.v < t.x) AS a, (SELECT sum(v + t.x) FROM u WHERE u.id <> t.id) AS b FROM t
SELECT id, (SELECT v FROM u WHERE u.id < t.id ORDER BY u.id DESC LIMIT 1) AS a, (SELECT max(v) FROM u) AS b FROM t
SELECT id, (SELECT sum(v) OVER () FROM u WHERE u.k = t.k ORDER BY u.id LIMIT 1) AS a FROM t
SELECT id, (SELECT x + 1) AS a, (SELECT max(q.v) FROM (SELECT v FROM u WHERE v > 5) q WHERE q.v <> t.x) AS b FROM t
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND EXISTS (SELECT 1 FROM u w WHERE w.id > u.id AND w.v = t.x))
SELECT id FROM t WHERE x = (SELECT min(v) FROM u WHERE u.id IN (SELECT u2.id FROM u u2 WHERE u2.k = t.k AND u2.v >= u.v))
SELECT id, (SELECT count(*) FROM u WHERE u.k = (SELECT min(k) FROM u u2 WHERE u2.v >= t.x AND u2.id >= u.id)) AS a FROM t
SELECT id, x IN (SELECT v FROM u WHERE u.k = t.k UNION ALL SELECT 10 * t.k) AS a FROM t
SELECT id FROM t WHERE EXISTS (SELECT v FROM u WHERE u.k = t.k EXCEPT SELECT x FROM t t2 WHERE t2.id = t.id)
SELECT t.id, l.n, l.m FROM t, LATERAL (SELECT count(*) AS n, max(v) AS m FROM u WHERE u.k = t.k) l
SELECT t.id, l.v FROM t LEFT JOIN LATERAL (SELECT DISTINCT v FROM u WHERE u.id <= t.id AND v > 1) l ON true
SELECT t.id, l.v FROM t, LATERAL (SELECT v FROM u WHERE u.k = t.k ORDER BY v NULLS LAST LIMIT 1) l
SELECT t.id, l.s FROM t JOIN LATERAL (SELECT sum(v) AS s FROM u WHERE u.k = t.k) l ON l.s > t.x
SELECT t.id, l.n, m.c FROM t, LATERAL (SELECT count(*) AS n FROM u WHERE u.v > t.x) l, LATERAL (SELECT l.n + count(*) AS c FROM u WHERE u.id < l.n) m
SELECT t.id, l.a, l.b FROM t, LATERAL (SELECT u.id AS a, e.dst AS b FROM u LEFT JOIN e ON e.src = u.id AND e.dst > t.id WHERE u.k = t.k) l
SELECT k, (SELECT count(*) FROM u WHERE u.k > t.k) AS a, sum(x) AS s FROM t GROUP BY k HAVING count(*) > (SELECT count(*) FROM u WHERE u.k = t.k)
SELECT id FROM t WHERE x > (SELECT avg(v) FROM u WHERE u.k = t.k) OR x IS NULL AND k IN (SELECT k FROM u WHERE v > (SELECT min(x) FROM t t2 WHERE t2.k = t.k))
SELECT id FROM t WHERE EXISTS (SELECT * FROM u WHERE u.k = t.k ORDER BY v LIMIT 1 OFFSET 1)
SELECT id, (SELECT max(c) FROM (SELECT count(*) AS c FROM u GROUP BY k) q WHERE c < t.k) AS a FROM t
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u JOIN e ON e.src = u.k AND e.dst = t.k WHERE u.v > 1)
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u LEFT JOIN e ON e.src = u.k AND e.dst = t.k WHERE u.v > 1 AND e.id IS NULL)
SELECT id FROM t WHERE k IN (SELECT u.k FROM u RIGHT JOIN e ON e.src = u.k WHERE e.dst <> t.id)
SELECT id, (SELECT sum(z) FROM (SELECT v AS z FROM u UNION ALL SELECT dst FROM e) q WHERE z > t.x) AS a FROM t
SELECT id FROM t WHERE x IN (SELECT max(v) FROM u WHERE u.k <> t.k)
SELECT id FROM t WHERE x NOT IN (SELECT max(v) FROM u WHERE u.k = t.k)
SELECT id, x IN (SELECT count(*) * 10 FROM u WHERE u.k = t.k) AS a FROM t
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE EXISTS (SELECT 1 FROM e WHERE EXISTS (SELECT 1 FROM u u3 WHERE u3.k = t.k AND u3.v > u.v AND u3.id > e.dst)))
SELECT id, (SELECT (SELECT max(v) FROM u u2 WHERE u2.k = u.k AND u2.id <> t.id) FROM u WHERE u.k = t.k ORDER BY u.id LIMIT 1) AS a FROM t
SELECT id, (SELECT min(u.v) FROM u WHERE u.k = t.k AND u.v > (SELECT avg(v) FROM u u2 WHERE u2.k = t.k)) AS a FROM t
SELECT t.id, s.id AS sid FROM t JOIN u s ON s.k = t.k WHERE s.v = (SELECT max(v) FROM u WHERE u.k = t.k AND u.id >= s.id)
WITH c AS (SELECT k, sum(x) AS s FROM t GROUP BY k) SELECT k, (SELECT count(*) FROM c c2 WHERE c2.s > c.s) AS rank FROM c
SELECT id, (SELECT sum(q.n) FROM (SELECT count(*) AS n FROM u) q, e WHERE e.src = t.id) AS a FROM t
SELECT id, (SELECT count(DISTINCT v) FROM u WHERE u.k >= t.k) AS a, (SELECT string_agg(CAST(v AS VARCHAR), ',') FROM u WHERE u.k = t.k AND u.v = 5) AS b FROM t
SELECT k, sum((SELECT count(*) FROM u WHERE u.k = t.k)) AS s FROM t GROUP BY k
SELECT k, max(x) AS m FROM t GROUP BY k HAVING max(x) > ANY (SELECT v FROM u WHERE u.k = t.k)
SELECT id, CASE WHEN x > (SELECT avg(v) FROM u WHERE u.k < t.k) THEN (SELECT min(v) FROM u) ELSE (SELECT count(*) FROM u WHERE u.k > t.k) END AS c FROM t
SELECT id FROM t ORDER BY (SELECT count(*) FROM u WHERE u.k = t.k) DESC, id LIMIT 3
SELECT id, row_number() OVER (ORDER BY (SELECT count(*) FROM u WHERE u.k = t.k), id) AS r FROM t
SELECT id FROM t QUALIFY row_number() OVER (PARTITION BY k ORDER BY id) <= (SELECT count(*) FROM u WHERE u.k = t.k)
SELECT DISTINCT (SELECT count(*) FROM u WHERE u.v > t.x) AS a FROM t
SELECT t.id, l.q FROM t, LATERAL (SELECT (SELECT count(*) FROM e WHERE e.src = u.id AND e.dst < t.id) AS q FROM u WHERE u.k = t.k) l
SELECT t.id, l.v, m.dst FROM t LEFT JOIN LATERAL (SELECT v, id FROM u WHERE u.k = t.k) l ON l.v > t.x LEFT JOIN LATERAL (SELECT dst FROM e WHERE e.src = l.id AND e.dst < t.id) m ON true
SELECT t.id, l.r FROM t, LATERAL (SELECT v, rank() OVER (ORDER BY v NULLS LAST) AS r FROM u WHERE u.k = t.k) l WHERE l.v IS NOT NULL
SELECT t.id, l.k, l.n FROM t, LATERAL (SELECT u.k, count(*) AS n FROM u WHERE u.id > t.id GROUP BY u.k) l
SELECT t.id, l.n FROM t LEFT JOIN LATERAL (SELECT count(*) AS n FROM u WHERE u.k = t.k) l ON l.n > 1
SELECT t.id, l.s FROM t, LATERAL (SELECT t.x + u.v AS s FROM u WHERE u.k = t.k UNION SELECT t.id) l
SELECT id FROM t WHERE (SELECT count(*) FROM u WHERE u.k = t.k) = 0
SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.v NOT IN (SELECT x FROM t t2 WHERE t2.k = t.k AND x IS NOT NULL))
SELECT id, EXISTS (SELECT sum(v) FROM u WHERE u.k = t.k) AS a, NOT EXISTS (SELECT count(*) FROM u WHERE u.k = t.k HAVING sum(v) > 10) AS b FROM t
SELECT id, (SELECT 1) AS a, EXISTS (SELECT 1) AS b, id IN (SELECT 1 UNION SELECT 3) AS c FROM t
SELECT id FROM t WHERE x IN (SELECT v FROM u) IS NULL
SELECT id FROM t WHERE (x IN (SELECT v FROM u WHERE u.k = t.k)) = (k IN (SELECT k FROM u))
SELECT id, coalesce(x NOT IN (SELECT v FROM u WHERE u.k = t.k), false) AS a FROM t
SELECT id FROM t WHERE id IN (SELECT id FROM u WHERE v IN (SELECT x FROM t t2 WHERE t2.k = t.k))
SELECT a.id FROM t a WHERE a.x = (SELECT max(x) FROM t b WHERE b.k = a.k) AND NOT EXISTS (SELECT 1 FROM t c WHERE c.k = a.k AND c.id < a.id AND c.x = a.x)
SELECT t.id, (SELECT count(*) FROM (SELECT DISTINCT v FROM u) q WHERE q.v > t.x) AS a FROM t
SELECT t.id FROM t WHERE EXISTS (SELECT k FROM u WHERE u.k = t.k INTERSECT SELECT src FROM e WHERE e.dst <> t.id)
SELECT t.id, u.id AS uid FROM t JOIN u ON u.k = t.k AND u.v > (SELECT avg(v) FROM u u2 WHERE u2.k <> t.k) LEFT JOIN e ON e.src = t.id
SELECT t.id, u.id AS uid FROM t JOIN u ON u.k = t.k AND (u.v IN (SELECT x FROM t) OR NOT EXISTS (SELECT 1 FROM e WHERE e.src = u.id AND e.dst > t.id))
SELECT id FROM e WHERE id = (SELECT t.k + 2 FROM t WHERE EXISTS (SELECT DISTINCT e.id FROM u JOIN e f ON f.id = u.k AND f.id < t.x) ORDER BY t.id LIMIT 1)
SELECT id FROM t WHERE x IN (SELECT u.v FROM u WHERE u.k NOT IN (SELECT u.v FROM e WHERE src = dst UNION ALL SELECT t.k + 1 FROM e))
WITH RECURSIVE r(a, b) AS (SELECT src, dst FROM e UNION SELECT r.a, e.dst FROM r JOIN e ON e.src = r.b) SELECT a, b FROM r
WITH RECURSIVE r(a, b, d) AS (SELECT src, dst, 1 FROM e UNION ALL SELECT r.a, e.dst, d + 1 FROM e, r WHERE e.src = r.b AND d < 4) SELECT a, b, d FROM r
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 9) SELECT n, x FROM r LEFT JOIN t ON t.id = r.n
SELECT t.id, u.id AS uid FROM t LEFT JOIN u ON u.k = t.k AND u.v IN (SELECT x FROM t t2 WHERE t2.id > u.id)
SELECT t.id, u.id AS uid FROM t LEFT JOIN u ON u.k = t.k AND t.x NOT IN (SELECT v FROM u u2 WHERE u2.k = t.k)
SELECT t.id, u.id AS uid FROM t FULL JOIN u ON u.k = t.k AND (EXISTS (SELECT 1 FROM e WHERE e.src = t.id) OR u.v > (SELECT avg(x) FROM t))
SELECT t.id, u.id AS uid FROM t RIGHT JOIN u ON t.x < (SELECT max(v) FROM u u2 WHERE u2.k = u.k) AND t.id <> u.id
SELECT t.id, u.id AS uid, e.id AS eid FROM t LEFT JOIN u ON u.k = t.k LEFT JOIN e ON e.src = u.id AND u.v >= (SELECT min(x) FROM t t3 WHERE t3.k = u.k)
SELECT t.id, u.id AS uid FROM t LEFT JOIN u ON t.x < u.v
SELECT t.id, u.id AS uid FROM t RIGHT JOIN u ON t.x < u.v OR t.k IS NULL AND u.k IS NULL
SELECT t.id, u.id AS uid FROM t FULL JOIN u ON t.x + u.v > 45
SELECT t.id FROM t SEMI JOIN u ON t.x < u.v AND u.k > 2
SELECT t.id FROM t ANTI JOIN u ON t.x < u.v AND u.k <> t.k
SELECT t.id, u.id AS uid FROM t CROSS JOIN u
SELECT t.id, u.id AS uid FROM t CROSS JOIN u WHERE t.x <> u.v
SELECT t.id, u.v FROM t JOIN (SELECT v FROM u WHERE id < 3) u ON true JOIN e ON e.src = t.k AND e.dst = u.v
SELECT k, x, id FROM (SELECT x, k FROM t) a NATURAL JOIN (SELECT id, k FROM u) b
SELECT k, x, id FROM (SELECT x, k FROM t) a NATURAL LEFT JOIN (SELECT id, k FROM u) b
SELECT k, x, id FROM (SELECT x, k FROM t) a NATURAL RIGHT JOIN (SELECT id, k FROM u) b
SELECT k, x, id, src FROM (SELECT x, k FROM t) a NATURAL FULL JOIN (SELECT id, k FROM u) b NATURAL JOIN (SELECT k, src FROM e, (SELECT 1 AS k) one) c
SELECT a.k AS ak, b.k AS bk, id FROM (SELECT x, k FROM t) a LEFT JOIN (SELECT id, k FROM u) b USING (k)
SELECT id, (SELECT max(q.v) FROM (SELECT v FROM u WHERE u.k = t.k) q) AS a FROM t
SELECT id, (SELECT sum(q.v * q.w) FROM (SELECT v, t.id AS w FROM u) q WHERE q.v > t.x) AS a FROM t
SELECT id, (SELECT count(*) FROM (SELECT DISTINCT v FROM u WHERE u.k = t.k) q) AS a FROM t
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM (SELECT k FROM u WHERE u.id = t.id) q JOIN u b ON b.k = q.k)
SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u b LEFT JOIN (SELECT k, count(*) AS c FROM u WHERE u.v > t.x GROUP BY k) q ON b.k = q.k WHERE q.c IS NULL AND b.id = t.id)
SELECT id, (SELECT sum(q.c) FROM u b, (SELECT count(*) AS c FROM u WHERE u.v > t.x) q WHERE b.k = t.k) AS a FROM t
SELECT id, (SELECT max(n) FROM (SELECT v AS n FROM u WHERE u.k = t.k UNION ALL SELECT t.x) q) AS a FROM t
SELECT id FROM t WHERE x IN (SELECT q.v FROM (SELECT v FROM (SELECT v, k FROM u WHERE u.id <> t.id) p WHERE p.k = t.k) q)
SELECT t.id, l.c FROM t, LATERAL (SELECT count(*) AS c FROM (SELECT v FROM u WHERE u.k = t.k AND v > 5) q) l
WITH RECURSIVE r AS (SELECT id, k FROM t UNION SELECT q.id, u.v FROM (SELECT id, k + 1 AS k2 FROM r WHERE id > 1) q JOIN u ON u.k = q.k2 JOIN e ON e.src = u.id AND e.dst <= q.id) SELECT id, k FROM r
"""


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        for statement in (*DDL.strip().split(";\n"), *ROWS):
            connection.execute(statement)
        yield connection


@pytest.fixture(scope="module")
def tables() -> Catalog:
    return Catalog(DDL)


def test_a_cross_join_has_the_condition_that_is_written(duck: duckdb.DuckDBPyConnection, tables: Catalog) -> None:
    """As in Spark; DuckDB has no such form."""
    for condition in ("ON t.k = u.k AND u.v > 5", "USING (k)"):
        plan = tables.plan(f"SELECT t.id, u.id AS uid FROM t CROSS JOIN u {condition}")
        wanted = Counter(duck.execute(f"SELECT t.id, u.id FROM t JOIN u {condition}").fetchall())
        assert Counter(duck.execute(duckdb_sql(plan.root)).fetchall()) == wanted


@pytest.mark.parametrize("sql", QUERIES.strip().splitlines())
def test_a_plan_means_what_its_sql_says(duck: duckdb.DuckDBPyConnection, tables: Catalog, sql: str) -> None:
    plan = tables.plan(sql)
    wanted = Counter(duck.execute(sql).fetchall())
    assert Counter(duck.execute(duckdb_sql(plan.root)).fetchall()) == wanted
