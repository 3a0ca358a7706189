"""Subqueries in every place, as live views over changing tables, against DuckDB after each change."""

from __future__ import annotations

from pathlib import Path

from tests.spark.conftest import Opener
from tests.spark.duck_model import Measured

import penstock

TABLES = [
    "CREATE TABLE t (id INT, k INT, x INT, PRIMARY KEY (id))",
    "CREATE TABLE u (id INT, k INT, v INT, PRIMARY KEY (id))",
]
CHANGES = [
    "INSERT INTO t VALUES (1, 1, 10), (2, 1, 20), (3, 2, NULL), (4, NULL, 10), (5, 3, 30); "
    "INSERT INTO u VALUES (1, 1, 10), (2, 2, 20), (3, 2, 5)",
    "INSERT INTO u VALUES (4, 1, NULL), (5, NULL, 30); UPDATE t SET x = 20 WHERE id IN (1, 4); UPDATE u SET v = 20 WHERE id = 1",
    "DELETE FROM u WHERE v IS NULL OR k = 1; INSERT INTO t VALUES (6, 2, 5), (7, 9, NULL)",
    "DELETE FROM u",
    "INSERT INTO u VALUES (1, 1, 10), (2, 2, NULL)",
]


def run(opener: Opener, folder: Path, views: dict[str, str]) -> None:
    both = Measured(opener, folder, TABLES, views)
    for n, change in enumerate(CHANGES):
        if n == 2:
            both.reopen()
        both.do(change)
    both.close()


def test_truth_values_of_subqueries(interpreted: Opener, tmp_path: Path) -> None:
    run(
        interpreted,
        tmp_path,
        {
            "truths": "SELECT id, x IN (SELECT v FROM u) AS a, x NOT IN (SELECT v FROM u WHERE u.k = t.k) AS b, "
            "EXISTS (SELECT 1 FROM u WHERE v > 15) AS c, "
            "CASE WHEN NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.v > t.x) THEN 'top' ELSE 'other' END AS d FROM t",
            "comparisons": "SELECT id, x IN (SELECT v FROM u WHERE u.id < t.id) AS a, (k, x) NOT IN (SELECT k, v FROM u) AS b, "
            "x > ALL (SELECT v FROM u WHERE u.k = t.k) AS c, x <= ANY (SELECT v FROM u) AS d FROM t",
            "filtered": "SELECT 1 AS n, id FROM t "
            "WHERE k = 3 OR x IN (SELECT v FROM u) OR NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k) "
            "UNION ALL SELECT 2, id FROM t WHERE x NOT IN (SELECT v FROM u WHERE u.k = t.k) AND id <> ALL (SELECT v FROM u) "
            "UNION ALL SELECT 3, id FROM t WHERE NOT (x IN (SELECT v FROM u WHERE u.k = t.k) OR x = 30)",
            "grouped": "SELECT k, max(x) IN (SELECT v FROM u WHERE u.k = t.k) AS a, "
            "sum(CASE WHEN x IN (SELECT v FROM u) THEN 1 ELSE 0 END) AS n FROM t GROUP BY k "
            "HAVING sum(x) IN (SELECT v FROM u) OR NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND u.v < 15)",
        },
    )


def test_subqueries_over_the_values_of_the_outer_query(interpreted: Opener, tmp_path: Path) -> None:
    run(
        interpreted,
        tmp_path,
        {
            "counted": "SELECT id, (SELECT count(*) + 1 FROM u WHERE u.k = t.k) AS a, (SELECT count(v) FROM u WHERE u.v < t.x) AS b FROM t",
            "picked": "SELECT t.id, l.v FROM t, LATERAL (SELECT v FROM u WHERE u.id < t.id ORDER BY u.id DESC LIMIT 1) l",
            "nested": "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND EXISTS "
            "(SELECT 1 FROM u w WHERE w.id >= u.id AND w.v = t.x))",
            # The values of the outer query are read twice.
            "before": "SELECT id, (SELECT max(v) FROM u WHERE u.id < t.id) AS a FROM t",
            "alike": "SELECT id FROM t a WHERE x = (SELECT max(x) FROM t b WHERE b.k IS NOT DISTINCT FROM a.k)",
            "derived": "SELECT id, (SELECT max(q.v) FROM (SELECT v FROM u WHERE u.k = t.k UNION ALL SELECT t.x) q) AS a FROM t",
        },
    )


def test_truth_values_in_one_shot_selects(db: penstock.Database) -> None:
    """As in a view: NULL where nobody knows. Spark itself has FALSE."""
    db.execute("""
        CREATE TABLE t (id INT, k INT, PRIMARY KEY (id)); CREATE TABLE u (id INT, v INT, PRIMARY KEY (id));
        INSERT INTO t VALUES (1, 10), (2, 20), (3, NULL); INSERT INTO u VALUES (1, 10), (2, NULL);
    """)
    selects = {
        "SELECT id, k IN (SELECT v FROM u), k NOT IN (SELECT v FROM u) FROM t ORDER BY id": [
            (1, True, False),
            (2, None, None),
            (3, None, None),
        ],
        "SELECT id, k IN (SELECT v FROM u WHERE v > 5) AS a, k IN (SELECT v FROM u WHERE v > 50) AS b FROM t ORDER BY id": [
            (1, True, False),
            (2, False, False),
            (3, None, False),
        ],
        "SELECT t.id, t.k NOT IN (SELECT u.v FROM u WHERE u.id >= t.id) AS a FROM t ORDER BY t.id": [
            (1, False),
            (2, None),
            (3, True),
        ],
        "SELECT id FROM t WHERE NOT (id > 1 AND k IN (SELECT v FROM u)) ORDER BY id": [(1,)],
        "SELECT count_if((k IN (SELECT v FROM u)) IS NULL) FROM t": [(2,)],
        # Over two levels, which Spark does not resolve.
        "SELECT id, (SELECT count(*) FROM u WHERE u.v = t.k AND u.v >= (SELECT max(w.v) FROM u w WHERE w.v <= t.k)) AS n FROM t ORDER BY id": [
            (1, 1),
            (2, 0),
            (3, 0),
        ],
        "SELECT id, (SELECT count(*) FROM u WHERE v = k AND v >= (SELECT max(w.v) FROM u w WHERE w.v <= k)) AS n FROM t ORDER BY id": [
            (1, 1),
            (2, 0),
            (3, 0),
        ],
    }
    for sql, rows in selects.items():
        assert db.sql(sql).fetchall() == rows, sql


def test_limit_in_correlated_one_shot_selects(db: penstock.Database) -> None:
    """The keys differ in type, where Spark itself takes the first rows of all outer rows together."""
    db.execute("""
        CREATE TABLE a (k SMALLINT PRIMARY KEY); CREATE TABLE b (id INT PRIMARY KEY, k BIGINT, v INT);
        INSERT INTO a VALUES (1), (2), (3); INSERT INTO b VALUES (1, 1, 10), (2, 1, 11), (3, 1, 12), (4, 2, 20), (5, 2, 21);
    """)
    selects = {
        "SELECT k, (SELECT v FROM b WHERE b.k = a.k ORDER BY v LIMIT 1) AS low FROM a ORDER BY k": [
            (1, 10),
            (2, 20),
            (3, None),
        ],
        "SELECT a.k, l.v FROM a, LATERAL (SELECT v FROM b WHERE b.k = a.k ORDER BY v DESC LIMIT 2) l ORDER BY a.k, l.v": [
            (1, 11),
            (1, 12),
            (2, 20),
            (2, 21),
        ],
        "SELECT a.k, l.id, l.v FROM a LEFT JOIN LATERAL (SELECT * FROM b WHERE b.k = a.k ORDER BY v LIMIT 1) l ON true ORDER BY a.k": [
            (1, 1, 10),
            (2, 4, 20),
            (3, None, None),
        ],
        "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k LIMIT 1) ORDER BY k": [(1,), (2,)],
        "SELECT a.k, l.n FROM a, LATERAL (SELECT count(*) AS n FROM (SELECT v FROM b WHERE b.k = a.k ORDER BY v LIMIT 2) x) l ORDER BY a.k": [
            (1, 2),
            (2, 2),
            (3, 0),
        ],
    }
    for sql, rows in selects.items():
        assert db.sql(sql).fetchall() == rows, sql
