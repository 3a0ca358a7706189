"""What the clock on the wall has a part in. Nothing sleeps: each test waits for the change that must come."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path

import pytest
from tests.spark.conftest import Opener
from tests.spark.following import SOON_S, Follower, bag, contents, rows_of, until

import penstock
from penstock.runtime.storage import proctime


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


def test_no_processing_time_row_is_late_when_the_wall_clock_is_set_back(
    opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = [0]
    monkeypatch.setattr(proctime, "wall_ms", lambda: time.time_ns() // 1_000_000 + ahead[0])
    windows = """
        CREATE SOURCE s (v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS PROCTIME());
        CREATE STREAM o AS SELECT sum(v) AS total FROM s GROUP BY TUMBLE(ts, INTERVAL '1' SECOND)
          EMIT ON WINDOW CLOSE LATE DATA TO missed;
    """
    total = 0
    for start in (True, False):
        with opener(tmp_path) as db:
            if start:
                db.execute(windows)
            for ahead[0] in (0, -3_600_000) if start else (-7_200_000,):
                db.insert("s", [{"v": 1}])
                with db.transaction() as transaction:
                    transaction.insert("s", [{"v": 1}])
                    db.insert("s", [{"v": 1}])
                total += 3
                db.flush(timeout=SOON_S)
                warning = db.metrics()["s"].warning
                assert (warning is not None) == (ahead[0] < 0), warning
            if not start:
                ahead[0] = 5000  # The clock has caught up.
                until(lambda: sum(n for (n,) in db.sql("SELECT total FROM o").fetchall()) == total)  # noqa: B023
            assert db.sql("SELECT v FROM missed").fetchall() == []
            assert db.metrics()["o"].late_rows == 0


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


TWO_IDLE = """
    CREATE SOURCE one (ts BIGINT, WATERMARK FOR ts) WITH (idle_timeout = '1 second');
    CREATE SOURCE two (ts BIGINT, WATERMARK FOR ts) WITH (idle_timeout = '1 second');
"""


def test_when_all_sources_are_idle_the_furthest_decides(db: penstock.Database) -> None:
    db.execute(
        TWO_IDLE
        + """
        CREATE STREAM o AS SELECT window_start, count(*) AS n
          FROM (SELECT ts FROM one UNION ALL SELECT ts FROM two)
          GROUP BY TUMBLE(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE LATE DATA TO missed;
        """
    )
    with db.subscribe("o") as subscription:
        # In one commit: a source that is idle by now does not hold back the other.
        with db.transaction() as both:
            both.insert("one", [(100,), (2500,)])
            both.insert("two", [(200,), (5000,)])
        got: list[tuple[object, ...]] = []
        while len(got) < 2:
            change = subscription.next(timeout=SOON_S)
            assert change is not None
            got += rows_of(change)
    assert sorted(got) == [(0, 2), (2000, 1)]
    # A source that comes back does not move the watermark back.
    db.insert("one", [(4000,), (5500,)])
    db.flush(timeout=SOON_S)
    assert db.sql("SELECT ts FROM missed").fetchall() == [(4000,)]


def test_a_query_over_idle_sources_is_idle(db: penstock.Database) -> None:
    db.execute(
        TWO_IDLE
        + """
        CREATE SOURCE busy (ts BIGINT, WATERMARK FOR ts);
        CREATE STREAM plain AS SELECT ts FROM one WHERE ts >= 0;
        CREATE STREAM counted AS SELECT window_end AS ts FROM two GROUP BY TUMBLE(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE;
        CREATE STREAM o AS SELECT window_start, count(*) AS n
          FROM (SELECT ts FROM plain UNION ALL SELECT ts FROM counted UNION ALL SELECT ts FROM busy)
          GROUP BY TUMBLE(ts, INTERVAL '10' SECOND) EMIT ON WINDOW CLOSE;
        """
    )
    with db.subscribe("o") as subscription:
        db.insert("one", [(100,)])
        db.insert("two", [(200,), (1000,)])
        db.flush(timeout=SOON_S)
        db.insert("busy", [(300,), (20_000,)])
        change = subscription.next(timeout=SOON_S)
    assert change is not None
    assert rows_of(change) == [(0, 3)]


def test_a_source_can_wait_for_each_value_of_a_column(opener: Opener, tmp_path: Path) -> None:
    with opener(tmp_path) as db:
        db.execute("""
            CREATE SOURCE s (device STRING, ts BIGINT, WATERMARK FOR ts) WITH (watermark_per = 'device', idle_timeout = '2 seconds');
            CREATE STREAM o AS SELECT window_start, count(*) AS n FROM s
              GROUP BY TUMBLE(ts, INTERVAL '1' SECOND) EMIT ON WINDOW CLOSE LATE DATA TO missed;
        """)
        db.insert("s", [("a", 100), ("b", 200), ("a", 5000)])
        assert db.source("s").current_watermark == 200
        db.insert("s", [("b", 900), ("b", 1000)])
        db.flush(timeout=SOON_S)
        assert db.sql("SELECT * FROM o").fetchall() == [(0, 3)]
    with opener(tmp_path) as db:
        db.insert("s", [("a", 6000), ("b", 1500)])
        assert db.source("s").current_watermark == 1500  # b is waited for,
        until(lambda: len(db.sql("SELECT * FROM o").fetchall()) == 3)  # until both are idle.
        assert contents(db, "o") == bag([(0, 3), (1000, 2), (5000, 1)])
        assert db.metrics()["o"].late_rows == 0


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


def test_sessions_stay_open_for_the_lateness(db: penstock.Database) -> None:
    db.execute("""
        CREATE SOURCE s (k STRING, ts BIGINT, WATERMARK FOR ts);
        CREATE STREAM o AS SELECT k, window_start, window_end, count(*) AS n
          FROM s GROUP BY k, SESSION(ts, INTERVAL '10' SECOND)
          EMIT ON WINDOW CLOSE ALLOW LATENESS INTERVAL '20' SECOND LATE DATA TO missed;
    """)
    closed, late = Follower(db, "o"), Follower(db, "missed")
    db.insert("s", [("a", 0), ("a", 5_000)])
    db.insert("s", [("b", 30_000)])  # The session [0, 15) has ended, but may still grow until 35.
    db.insert("s", [("a", 12_000)])  # It grows to [0, 22).
    db.flush(timeout=SOON_S)
    assert closed.rows() == []
    db.insert("s", [("b", 42_000)])
    db.flush(timeout=SOON_S)
    assert closed.rows() == [("a", 0, 22_000, 3)]
    db.insert("s", [("a", 11_000), ("a", 1_000)])  # Their sessions would have closed at 41 and 31.
    db.flush(timeout=SOON_S)
    db.insert("s", [("a", 13_000)])  # This one alone is [13, 23), which is open until 43.
    db.flush(timeout=SOON_S)
    assert sorted(late.rows()) == [("a", 1_000), ("a", 11_000)]
    assert db.metrics()["o"].late_rows == 2
    db.source("s").watermark(43_000)
    db.flush(timeout=SOON_S)
    assert closed.rows() == [("a", 13_000, 23_000, 1)]


def test_windows_before_1970_close(db: penstock.Database) -> None:
    db.execute("""
        CREATE SOURCE s (k STRING, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts);
        CREATE SOURCE r (k STRING, w BIGINT, rts TIMESTAMP, WATERMARK FOR rts);
        CREATE STREAM native AS SELECT k, window_start, sum(v) AS n FROM s
          GROUP BY k, TUMBLE(ts, INTERVAL '1' DAY) EMIT ON WINDOW CLOSE;
        CREATE STREAM kernel AS SELECT k, window_end, median(v) AS n FROM s
          GROUP BY k, TUMBLE(ts, INTERVAL '1' DAY) EMIT ON WINDOW CLOSE;
        CREATE STREAM sessions AS SELECT k, count(*) AS n FROM s
          GROUP BY k, SESSION(ts, INTERVAL '1' HOUR) EMIT ON WINDOW CLOSE;
        CREATE STREAM pairs AS SELECT s.k, r.w FROM s LEFT JOIN r
          ON s.k = r.k AND r.rts BETWEEN s.ts AND s.ts + INTERVAL '1' HOUR;
        CREATE MATERIALIZED VIEW recent AS SELECT k FROM s WHERE ts > now() - INTERVAL '3' DAY;
    """)
    march, day = round(dt.datetime(1955, 3, 1, tzinfo=dt.UTC).timestamp() * 1000), 86_400_000
    names = ("native", "kernel", "sessions", "pairs")
    followers = {n: Follower(db, n) for n in names}
    db.execute("INSERT INTO r VALUES ('a', 7, TIMESTAMP '1955-03-01 12:30:00')")
    db.execute(
        "INSERT INTO s VALUES ('a', 1, TIMESTAMP '1955-03-01 12:00:00'), ('b', 2, TIMESTAMP '1955-03-02 12:00:00')"
    )
    db.flush(timeout=SOON_S)
    assert followers["native"].rows() == [("a", march, 1)]
    assert followers["kernel"].rows() == [("a", march + day, 1.0)]
    assert followers["sessions"].rows() == [("a", 1)]
    assert followers["pairs"].rows() == [("a", 7)]
    assert sorted(db.sql("SELECT k FROM recent").fetchall()) == [("a",), ("b",)]
    db.execute(
        "INSERT INTO s VALUES ('a', 4, TIMESTAMP '1955-03-01 13:00:00'), ('c', 3, TIMESTAMP '1955-03-05 00:00:00')"
    )
    db.execute("INSERT INTO r VALUES ('z', 0, TIMESTAMP '1955-03-05 00:00:00')")
    db.flush(timeout=SOON_S)
    assert followers["native"].rows() == [("b", march + day, 2)]
    assert db.metrics()["native"].late_rows == 1
    assert followers["sessions"].rows() == [("b", 1)]
    assert sorted(followers["pairs"].rows()) == [("a", None), ("b", None)]
    assert sorted(db.sql("SELECT k FROM recent").fetchall()) == [("b",), ("c",)]


def test_rows_leave_windows_that_have_ended(db: penstock.Database) -> None:
    db.execute("""
        CREATE SOURCE s (k STRING, ts BIGINT, WATERMARK FOR ts);
        CREATE MATERIALIZED VIEW windows AS SELECT k, window_start, count(*) AS n FROM s
          WHERE ts > now() - INTERVAL '5' SECOND GROUP BY k, TUMBLE(ts, INTERVAL '2' SECOND);
        CREATE MATERIALIZED VIEW sessions AS SELECT k, window_start, count(*) AS n FROM s
          WHERE ts > now() - INTERVAL '5' SECOND GROUP BY k, SESSION(ts, INTERVAL '2' SECOND);
    """)

    def both(watermark: int) -> list[list[tuple[object, ...]]]:
        db.source("s").watermark(watermark)
        db.flush(timeout=SOON_S)
        return [sorted(db.sql(f"SELECT * FROM {name}").fetchall()) for name in ("windows", "sessions")]

    db.insert("s", [("a", 0), ("a", 1_000), ("a", 2_500), ("b", 4_000)])
    assert both(4_000) == [[("a", 0, 2), ("a", 2_000, 1), ("b", 4_000, 1)], [("a", 0, 3), ("b", 4_000, 1)]]
    assert both(6_000) == [[("a", 2_000, 1), ("b", 4_000, 1)], [("a", 2_500, 1), ("b", 4_000, 1)]]
    assert both(20_000) == [[], []]
    assert [o.state_rows for name in ("windows", "sessions") for o in db.metrics()[name].operators] == [0] * 4
