"""Parts that occur in a view more than once are computed and kept once: compared with DuckDB after each change, across restarts."""

from __future__ import annotations

from pathlib import Path

from tests.spark.conftest import Opener
from tests.spark.duck_model import Measured
from tests.spark.following import SOON_S, Follower, settle

import penstock

TABLES = [
    "CREATE TABLE t (id INT, k INT, x INT, s STRING, PRIMARY KEY (id))",
    "CREATE TABLE u (k INT, y INT, PRIMARY KEY (k))",
]

SUMS = "WITH r AS (SELECT k, sum(x) AS n, count(*) AS m FROM t GROUP BY k) "
VIEWS = {
    "best": SUMS + "SELECT k, n FROM r WHERE n = (SELECT max(n) FROM r)",
    "pairs": SUMS + "SELECT a.k, b.k AS l, a.n, b.m FROM r a JOIN r b ON a.n > b.m AND a.m = b.m",
    "many": "WITH j AS (SELECT t.id, t.s, u.y FROM t LEFT JOIN u ON t.k = u.k), top AS (SELECT id, s, y FROM j ORDER BY id DESC LIMIT 3) "
    "SELECT 1 AS n, id, s, y FROM top WHERE y > 1 UNION ALL SELECT 2, id, s, y FROM j UNION ALL SELECT 3, max(id), min(s), sum(y) FROM top",
}
CHANGES = [
    "INSERT INTO t VALUES (1, 1, 10, 'a'), (2, 1, 20, 'b'), (3, 2, NULL, NULL), (4, NULL, 10, ''), (5, 3, 30, 'c'); "
    "INSERT INTO u VALUES (1, 1), (2, 20), (3, 2)",
    "UPDATE t SET x = 40 WHERE id = 5; UPDATE t SET k = 2 WHERE id = 2; INSERT INTO u VALUES (3, 5), (4, NULL)",
    "DELETE FROM t WHERE k = 1 OR k IS NULL; INSERT INTO t VALUES (6, 3, 1, 'f'), (7, 9, 41, 'g')",
    "DELETE FROM t; DELETE FROM u",
]


def operators(db: penstock.Database, name: str) -> list[tuple[str, int]]:
    return [(o.name, o.state_rows) for o in db.metrics()[name].operators]


def test_views_over_changing_tables(interpreted: Opener, tmp_path: Path) -> None:
    both = Measured(interpreted, tmp_path, TABLES, VIEWS)
    empty = {}
    for n, change in enumerate(CHANGES):
        if n == 2:
            both.reopen()
        both.do(change)
        if n == 0:
            # Four groups, once; two values of max and their row; four rows and the largest in the join.
            assert operators(both.db, "best") == [("Aggregate", 4), ("Aggregate", 3), ("Join", 5)]
            assert [o for o, _ in operators(both.db, "pairs")] == ["Aggregate", "Join"]
            assert [o for o, _ in operators(both.db, "many")] == ["Join", "TopN", "Aggregate"]
            told = both.db.explain(f"CREATE MATERIALIZED VIEW best AS {VIEWS['best']}", analyze=True)
            assert told.count("Scan t") == 1 and told.count("Part 1 again → ") == 1
        if n == 3:
            empty = {name: operators(both.db, name) for name in VIEWS}
    # All was deleted: what is left is what a query keeps of nothing.
    assert empty["best"][0] == ("Aggregate", 0) and empty["pairs"] == [("Aggregate", 0), ("Join", 0)]
    assert sum(rows for _, rows in empty["many"]) <= 2
    both.close()


def test_event_time(interpreted: Opener, tmp_path: Path) -> None:
    """What reads a part follows the watermark as the part does, and a part's late rows are counted once."""
    db = interpreted(tmp_path)
    windows = "SELECT k, window_end, count(*) AS n FROM s GROUP BY k, TUMBLE(ts, INTERVAL '1' SECOND)"
    db.execute(f"""
        CREATE SOURCE s (k STRING, ts BIGINT, WATERMARK FOR ts);
        CREATE STREAM hot AS WITH c AS ({windows})
          SELECT c.k, c.n, c.window_end FROM c JOIN (SELECT sum(n) AS every, window_end FROM c GROUP BY window_end) m
            ON c.window_end = m.window_end AND 2 * c.n > m.every EMIT ON WINDOW CLOSE;
        CREATE STREAM totals AS WITH c AS ({windows})
          SELECT window_end, 'all' AS what, sum(n) AS n FROM c GROUP BY window_end
          UNION ALL SELECT window_end, k, n FROM c EMIT ON WINDOW CLOSE;
    """)
    assert [o.name for o in db.metrics()["hot"].operators] == ["Aggregate", "Aggregate", "IntervalJoin"]
    hot, totals = Follower(db, "hot"), Follower(db, "totals")
    db.insert("s", [("a", 100), ("a", 200), ("b", 300), ("b", 1100)])
    settle(db)
    assert hot.rows() == [("a", 2, 1000)]
    assert sorted(totals.rows()) == [(1000, "a", 2), (1000, "all", 3), (1000, "b", 1)]
    db.insert("s", [("b", 900), ("c", 1200)])
    settle(db)
    assert db.metrics()["hot"].late_rows == 1 and hot.rows() == totals.rows() == []
    db.close()
    db = interpreted(tmp_path)
    hot, totals = Follower(db, "hot"), Follower(db, "totals")
    db.insert("s", [("c", 1300), ("c", 2000)])
    db.source("s").watermark(4000)
    db.flush(timeout=SOON_S)
    assert sorted(hot.rows()) == [("c", 1, 3000), ("c", 2, 2000)]
    expected = [(2000, "all", 3), (2000, "b", 1), (2000, "c", 2), (3000, "all", 1), (3000, "c", 1)]
    assert sorted(totals.rows()) == expected
    assert [o.state_rows for o in db.metrics()["hot"].operators] == [0, 0, 0]
    db.close()
