"""Windows and joins in time in forms that the conformance cases do not write."""

from __future__ import annotations

from tests.spark.following import SOON_S, Follower

import penstock


def test_sessions_as_a_table_function(db: penstock.Database) -> None:
    db.execute("""
        CREATE SOURCE s (k STRING, v BIGINT, ts BIGINT, WATERMARK FOR ts);
        CREATE MATERIALIZED VIEW rows_now AS
          SELECT k, v, window_start AS b, window_end AS e
          FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND);
        CREATE STREAM closed AS
          SELECT x.k, x.v, x.window_end FROM TABLE(SESSION(TABLE s PARTITION BY (k), DESCRIPTOR(ts), INTERVAL '10' SECOND)) x
          EMIT ON WINDOW CLOSE;
        CREATE STREAM counted AS
          SELECT k, window_start, window_end, count(*) AS n, sum(v) AS total
          FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND)
          GROUP BY k, window_start, window_end EMIT ON WINDOW CLOSE;
        CREATE MATERIALIZED VIEW everyone AS
          SELECT window_start AS b, count(*) AS n FROM SESSION(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start;
    """)
    closed, counted = Follower(db, "closed"), Follower(db, "counted")
    db.insert("s", [("a", 1, 1_000), ("a", 2, 20_000), ("b", 3, 5_000)])
    db.flush(timeout=SOON_S)
    now = "SELECT k, v, b, e FROM rows_now ORDER BY k, v"
    assert db.sql(now).fetchall() == [("a", 1, 1_000, 11_000), ("a", 2, 20_000, 30_000), ("b", 3, 5_000, 15_000)]
    assert db.sql("SELECT * FROM everyone ORDER BY b").fetchall() == [(1_000, 2), (20_000, 1)]
    assert sorted(closed.rows()) == [("a", 1, 11_000), ("b", 3, 15_000)]
    db.insert("s", [("a", 4, 29_000), ("b", 5, 60_000)])
    db.flush(timeout=SOON_S)
    assert db.sql(now).fetchall() == [
        ("a", 1, 1_000, 11_000),
        ("a", 2, 20_000, 39_000),
        ("a", 4, 20_000, 39_000),
        ("b", 3, 5_000, 15_000),
        ("b", 5, 60_000, 70_000),
    ]
    assert sorted(closed.rows()) == [("a", 2, 39_000), ("a", 4, 39_000)]
    assert sorted(counted.rows()) == [
        ("a", 1_000, 11_000, 1, 1),
        ("a", 20_000, 39_000, 2, 6),
        ("b", 5_000, 15_000, 1, 3),
    ]


def test_windows_over_windows_in_one_query(db: penstock.Database) -> None:
    per_key = "SELECT k, window_start, window_end, count(*) AS n FROM s GROUP BY k, TUMBLE(ts, INTERVAL '10' SECOND)"
    db.execute(f"""
        CREATE SOURCE s (k STRING, ts BIGINT, WATERMARK FOR ts);
        CREATE STREAM by_end AS SELECT window_end, max(n) AS top FROM ({per_key}) GROUP BY window_end EMIT ON WINDOW CLOSE;
        CREATE STREAM wider AS SELECT window_end, sum(n) AS n FROM (SELECT window_start AS w, n FROM ({per_key}))
          GROUP BY TUMBLE(w, INTERVAL '15' SECOND) EMIT ON WINDOW CLOSE;
        CREATE STREAM joined AS SELECT a.k, a.n AS n, b.n AS m FROM ({per_key}) a LEFT JOIN ({per_key}) b
          ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end AND b.n > 1 EMIT ON WINDOW CLOSE;
    """)
    followers = {n: Follower(db, n) for n in ("by_end", "wider", "joined")}

    def step(*rows: tuple[str, int]) -> dict[str, list[tuple[object, ...]]]:
        db.insert("s", list(rows))
        db.flush(timeout=SOON_S)
        return {n: sorted(f.rows()) for n, f in followers.items()}

    got = step(("a", 1_000), ("a", 2_000), ("b", 3_000), ("a", 11_000), ("b", 12_000))
    assert got == {"by_end": [(10_000, 2)], "wider": [], "joined": [("a", 2, 2), ("b", 1, None)]}
    got = step(("b", 13_000), ("b", 14_000), ("c", 26_000))
    # [0, 15 s) waits for windows of 10 s that begin in it.
    assert got == {
        "by_end": [(20_000, 3)],
        "wider": [(15_000, 7)],
        "joined": [("a", 1, None), ("b", 3, 3)],
    }
    got = step(("c", 27_000), ("c", 45_000))
    assert got == {"by_end": [(30_000, 2)], "wider": [(30_000, 2)], "joined": [("c", 2, 2)]}


def test_the_nearest_row_within_a_tolerance(db: penstock.Database) -> None:
    db.execute("""
        CREATE SOURCE t (k STRING, ts BIGINT);
        CREATE SOURCE q (k STRING, p BIGINT, qts BIGINT);
        CREATE STREAM o AS SELECT t.ts, q.p FROM t
          ASOF JOIN q MATCH_CONDITION (NEAREST (t.ts, q.qts) AND abs(t.ts - q.qts) <= 5) ON t.k = q.k;
    """)
    follower = Follower(db, "o")
    db.insert("q", [("a", 1, 100), ("a", 2, 120)])
    db.flush(timeout=SOON_S)
    db.insert("t", [("a", 96), ("a", 94), ("a", 105), ("a", 110), ("a", 116), ("a", 125), ("a", 126)])
    db.flush(timeout=SOON_S)
    assert sorted(follower.rows()) == [(94, None), (96, 1), (105, 1), (110, None), (116, 2), (125, 2), (126, None)]
