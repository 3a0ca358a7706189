"""What the clock on the wall has a part in. Nothing sleeps: each test waits for the change that must come."""

from __future__ import annotations

import time

from tests.spark.following import SOON_S, Follower, rows_of

import penstock


def test_processing_time_closes_windows_by_itself(db: penstock.Database) -> None:
    db.execute("""
        CREATE SOURCE s (v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS PROCTIME());
        CREATE STREAM o AS SELECT sum(v) AS total FROM s GROUP BY TUMBLE(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE;
    """)
    with db.subscribe("o") as subscription:
        db.insert("s", [{"v": 1}, {"v": 2}])
        change = subscription.next(timeout=SOON_S)
    assert change is not None
    assert rows_of(change) == [(3,)]


def test_an_idle_source_stops_holding_the_others_back(db: penstock.Database) -> None:
    db.execute("""
        CREATE SOURCE quiet (ts BIGINT, WATERMARK FOR ts) WITH (idle_timeout = '1 second');
        CREATE SOURCE busy (ts BIGINT, WATERMARK FOR ts);
        CREATE STREAM o AS SELECT window_start, count(*) AS n
          FROM (SELECT ts FROM quiet UNION ALL SELECT ts FROM busy)
          GROUP BY TUMBLE(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE;
    """)
    with db.subscribe("o") as subscription:
        db.insert("quiet", [(100,)])
        db.insert("busy", [(200,), (5000,)])
        change = subscription.next(timeout=SOON_S)
    assert change is not None
    assert rows_of(change) == [(0, 2)]


def test_a_source_that_is_not_idle_holds_the_others_back(db: penstock.Database) -> None:
    db.execute("""
        CREATE SOURCE slow (ts BIGINT, WATERMARK FOR ts);
        CREATE SOURCE fast (ts BIGINT, WATERMARK FOR ts);
        CREATE STREAM o AS SELECT window_start, count(*) AS n
          FROM (SELECT ts FROM slow UNION ALL SELECT ts FROM fast)
          GROUP BY TUMBLE(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE;
    """)
    follower = Follower(db, "o")
    db.insert("slow", [(100,)])
    db.insert("fast", [(200,), (5000,)])
    db.flush(timeout=SOON_S)
    assert follower.rows() == []
    db.insert("slow", [(900,), (1000,)])
    db.flush(timeout=SOON_S)
    assert follower.rows() == [(0, 3)]


def test_emit_every_tells_once_per_tick(db: penstock.Database) -> None:
    db.execute("""
        CREATE SOURCE s (k STRING, v BIGINT);
        CREATE STREAM o AS SELECT k, sum(v) AS total FROM s GROUP BY k EMIT EVERY INTERVAL '3' SECOND;
    """)
    follower = Follower(db, "o")
    began = time.time()
    for _ in range(20):
        db.insert("s", [("a", 1), ("b", 2)])
    db.flush(timeout=SOON_S)
    ticks = int(time.time() // 3) - int(began // 3) + 1
    changes = follower.changes()
    assert len(changes) <= ticks
    total: dict[str, int] = {}
    for change in changes:
        for k, value, weight in rows_of(change):
            total[k] = total.get(k, 0) + value * weight
    assert total == {"a": 20, "b": 40}


def test_windows_close_behind_queries_without_state(db: penstock.Database) -> None:
    db.execute("""
        CREATE SOURCE s (k BIGINT, ts BIGINT, WATERMARK FOR ts);
        CREATE STREAM positive AS SELECT k, ts FROM s WHERE k > 0;
        CREATE STREAM even AS SELECT ts, k / 2 AS half FROM positive WHERE k % 2 = 0;
        CREATE STREAM o AS SELECT window_end, count(*) AS n FROM even GROUP BY TUMBLE(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE;
        INSERT INTO s VALUES (2, 100), (3, 200), (4, 900), (6, 1500);
    """)
    db.flush()
    assert db.sql("SELECT * FROM o").fetchall() == [(1000, 2)]
    # The watermark goes through also where no row does.
    db.execute("INSERT INTO s VALUES (-1, 2500)")
    db.flush()
    assert sorted(db.sql("SELECT * FROM o").fetchall()) == [(1000, 2), (2000, 1)]
    db.source("s").watermark(9000)
    db.flush()
    assert [db.metrics()[n].watermark for n in ("s", "positive", "even", "o")] == [9000] * 4
