"""Orders and sets within closing windows: the output is append-only, and no state is kept."""

from __future__ import annotations

from tests.spark.following import Follower, settle

import penstock

SOURCE = "CREATE SOURCE s (k STRING, v BIGINT, ts BIGINT, WATERMARK FOR ts)"
COUNTS = "SELECT k, count(*) AS n, window_start, window_end FROM s GROUP BY k, TUMBLE(ts, INTERVAL '10' SECOND)"

ROWS = [
    *(("a", 1, ts) for ts in (0, 1_000, 2_000)),
    *(("b", 1, ts) for ts in (0, 1_000, 2_000)),
    *(("c", 1, ts) for ts in (3_000, 4_000)),
    ("d", 1, 5_000),
    *(("a", 1, ts) for ts in (10_000, 11_000)),
    ("b", 1, 12_000),
]


def kept(db: penstock.Database, name: str) -> dict[str, int]:
    return {o.name: o.state_rows for o in db.metrics()[name].operators}


def test_tops_of_windows_that_close(db: penstock.Database) -> None:
    top = "CREATE STREAM {} AS SELECT k, n, window_end FROM ({}) QUALIFY {} EMIT ON WINDOW CLOSE"
    order = "OVER (PARTITION BY window_start{} ORDER BY n DESC)"
    db.execute(SOURCE)
    db.execute(top.format("ranked", COUNTS, f"rank() {order.format('')} <= 2"))
    db.execute(top.format("dense", COUNTS, f"dense_rank() {order.format(', window_end')} = 2"))
    db.execute(top.format("numbered", COUNTS, f"row_number() {order.format('')} BETWEEN 2 AND 3"))
    names = ("ranked", "dense", "numbered")
    followers = {n: Follower(db, n) for n in names}
    db.insert("s", ROWS)
    settle(db)
    # All came in one epoch, without a weight: none will ever be taken back.
    first = {n: sorted(followers[n].rows()) for n in names}
    assert first == {
        "ranked": [("a", 3, 10_000), ("b", 3, 10_000)],
        "dense": [("c", 2, 10_000)],
        "numbered": [("b", 3, 10_000), ("c", 2, 10_000)],
    }
    assert [(kept(db, n) | {"Aggregate": 0}) for n in names] == [
        {"Aggregate": 0, o: 0} for o in ("TopN", "TopN", "Analytic")
    ]
    db.insert("s", [("z", 1, 20_000)])
    settle(db)
    assert {n: sorted(followers[n].rows()) for n in names} == {
        "ranked": [("a", 2, 20_000), ("b", 1, 20_000)],
        "dense": [("b", 1, 20_000)],
        "numbered": [("b", 1, 20_000)],
    }


def test_functions_over_windows_that_close(db: penstock.Database) -> None:
    db.execute(f"""
        {SOURCE};
        CREATE STREAM shares AS
          SELECT k, n, sum(n) OVER (PARTITION BY window_end) AS every,
                 lag(k) OVER (PARTITION BY window_end ORDER BY n DESC, k) AS before
          FROM ({COUNTS}) EMIT ON WINDOW CLOSE;
        CREATE STREAM again AS
          SELECT window_end, count(*) AS rows FROM (SELECT k, window_end, row_number() OVER (PARTITION BY window_end ORDER BY n) AS r FROM ({COUNTS}))
          WHERE r <= 3 GROUP BY window_end EMIT ON WINDOW CLOSE;
        CREATE STREAM copies AS
          SELECT n, window_end FROM (SELECT n, window_end, window_start FROM ({COUNTS}))
          QUALIFY row_number() OVER (PARTITION BY window_start ORDER BY n DESC) <= 2 EMIT ON WINDOW CLOSE;
        CREATE STREAM different AS SELECT DISTINCT n, window_end FROM (SELECT n, window_end FROM ({COUNTS})) EMIT ON WINDOW CLOSE;
    """)
    shares, again, copies, different = (Follower(db, n) for n in ("shares", "again", "copies", "different"))
    db.insert("s", ROWS)
    db.insert("s", [("z", 1, 20_000)])
    settle(db)
    assert sorted(shares.rows()) == sorted(
        [
            ("a", 3, 9, None),
            ("b", 3, 9, "a"),
            ("c", 2, 9, "b"),
            ("d", 1, 9, "c"),
            ("a", 2, 3, None),
            ("b", 1, 3, "a"),
        ]
    )
    assert sorted(again.rows()) == [(10_000, 3), (20_000, 2)]
    # Equal rows come as often as there are any.
    assert sorted(copies.rows()) == [(1, 20_000), (2, 20_000), (3, 10_000), (3, 10_000)]
    assert sorted(different.rows()) == [(1, 10_000), (1, 20_000), (2, 10_000), (2, 20_000), (3, 10_000)]
    assert kept(db, "different")["DistinctRows"] == 0
    assert kept(db, "shares")["Analytic"] == kept(db, "copies")["TopN"] == 0


def test_windows_that_share_a_start_are_kept_apart(db: penstock.Database) -> None:
    """CUMULATE closes windows with one start at different times, so a later one can still change the order."""
    counts = "SELECT k, count(*) AS n, window_start, window_end FROM s GROUP BY k, CUMULATE(ts, INTERVAL '5' SECOND, INTERVAL '10' SECOND)"
    db.execute(f"""
        {SOURCE};
        CREATE MATERIALIZED VIEW best AS SELECT k, n FROM ({counts})
          QUALIFY row_number() OVER (PARTITION BY window_start ORDER BY n DESC, k) = 1 EMIT ON WINDOW CLOSE;
        CREATE MATERIALIZED VIEW each AS SELECT k, n, window_end FROM ({counts})
          QUALIFY row_number() OVER (PARTITION BY window_end ORDER BY n DESC, k) = 1 EMIT ON WINDOW CLOSE;
    """)
    db.insert("s", [("a", 1, 0), ("b", 1, 1_000), ("a", 1, 2_000), ("b", 1, 6_000), ("b", 1, 6_500)])
    settle(db)
    assert db.sql("SELECT * FROM best").fetchall() == [("a", 2)]
    db.insert("s", [("z", 1, 10_000)])
    settle(db)
    assert db.sql("SELECT * FROM best").fetchall() == [("b", 3)]
    assert db.sql("SELECT * FROM each ORDER BY window_end").fetchall() == [("a", 2, 5_000), ("b", 3, 10_000)]
