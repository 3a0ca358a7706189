"""Windows in a one-shot SELECT give what the view of the same query has at the end of its input."""

from __future__ import annotations

import random

import penstock

_MINUTE = "INTERVAL '1' MINUTE"
_QUERIES = [
    f"SELECT TUMBLE_START(ts, {_MINUTE}, INTERVAL '7' SECOND) AS a, TUMBLE_END(ts, {_MINUTE}, INTERVAL '7' SECOND) AS b, sum(v) AS v"
    f" FROM s WHERE v > 1 GROUP BY TUMBLE(ts, {_MINUTE}, INTERVAL '7' SECOND) HAVING sum(v) > 2",
    "SELECT k, window_start, max(v) AS v FROM s GROUP BY k, HOP(ts, INTERVAL '20' SECOND, INTERVAL '50' SECOND)",
    f"SELECT window_start, window_end, sum(v) AS v FROM s GROUP BY CUMULATE(ts, INTERVAL '15' SECOND, {_MINUTE})",
    "SELECT window_start, count(*) AS n FROM s GROUP BY TUMBLE(ts, INTERVAL '1' MONTH)",
    "SELECT k, window_start, window_end, count(*) AS n, max(x.v) AS v FROM s AS x GROUP BY x.k, SESSION(ts, INTERVAL '10' SECOND)",
    "SELECT window_start, window_end, sum(v) AS v FROM s WHERE k <> 'a' GROUP BY SESSION(ts, INTERVAL '7' SECOND)",
    f"SELECT k, window_end, sum(v) AS v FROM TUMBLE(TABLE s, DESCRIPTOR(ts), {_MINUTE}) GROUP BY k, window_end, window_start",
    "SELECT k, v, window_start, window_end FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
    "SELECT window_start, window_end, count(*) AS n FROM m GROUP BY SESSION(ms, INTERVAL '10' SECOND)",
    f"SELECT d.name, window_start, sum(s.v) AS v FROM s JOIN d ON s.k = d.k GROUP BY d.name, TUMBLE(s.ts, {_MINUTE})",
]


def _rows(db: penstock.Database, sql: str) -> tuple[list[str], list[str]]:
    found = db.sql(sql).arrow()
    return found.column_names, sorted(map(repr, zip(*(c.to_pylist() for c in found.columns), strict=True)))


def test_windows_once_equal_the_views(db: penstock.Database) -> None:
    db.execute("""
        CREATE SOURCE s (k STRING, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1' HOUR);
        CREATE SOURCE m (v BIGINT, ms BIGINT, WATERMARK FOR ms AS ms - INTERVAL '1' HOUR);
        CREATE TABLE d (k STRING PRIMARY KEY, name STRING);
        INSERT INTO d VALUES ('a', 'A'), ('b', 'B');
    """)
    for i, query in enumerate(_QUERIES):
        db.execute(f"CREATE MATERIALIZED VIEW v{i} AS {query}")
    random.seed(3)
    start = 1_767_600_000_000
    times = [start + random.randrange(0, 600) * 500 for _ in range(60)]
    # Exactly the gap apart: one session.
    times += [start + 700_000, start + 710_000, start + 710_000, start + 720_001]
    db.insert("m", [{"v": i, "ms": t} for i, t in enumerate(times)])
    rows = [{"k": random.choice("ab"), "v": i % 5, "ts": t} for i, t in enumerate(times)]
    db.insert("s", rows)
    db.flush()
    for i, query in enumerate(_QUERIES):
        assert _rows(db, query) == _rows(db, f"SELECT * FROM v{i}"), query
    joined = """SELECT d.name, s.k, count(*) AS n, window_end, max(s.v) + 1 AS k1 FROM s JOIN d ON s.k = d.k WHERE s.v > 0
        GROUP BY d.name, s.k, SESSION(s.ts, INTERVAL '10' SECOND) HAVING count(*) > 1"""
    derived = """SELECT name, k, count(*) AS n, window_end, max(v) + 1 AS k1
        FROM (SELECT d.name, s.k, s.v, s.ts FROM s JOIN d ON s.k = d.k WHERE s.v > 0) AS j
        GROUP BY name, k, SESSION(CAST(ts AS TIMESTAMP), INTERVAL '10' SECOND) HAVING count(*) > 1"""
    assert _rows(db, joined) == _rows(db, derived) and len(_rows(db, joined)[1]) > 3
    ordered = db.sql(f"{_QUERIES[3]} ORDER BY window_start LIMIT 1").fetchall()
    assert len(ordered) == 1
    assert "answered by Spark" in db.sql(f"EXPLAIN {_QUERIES[0]}").fetchall()[-1][0]
