"""The state of queries: counted, limited, expired."""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path

import pytest
from tests.spark.conftest import Opener
from tests.spark.following import SOON_S, until

import penstock


def kept(db: penstock.Database, name: str) -> tuple[int, int]:
    one = db.metrics()[name]
    return one.state_rows, one.state_bytes


def test_state_is_counted_up_and_down_and_over_a_restart(opener: Opener, tmp_path: Path) -> None:
    db = opener(tmp_path / "data")
    db.execute("""
        CREATE TABLE t (k BIGINT PRIMARY KEY, g STRING, v BIGINT);
        CREATE TABLE u (g STRING PRIMARY KEY, name STRING);
        CREATE SOURCE s (k STRING, ts TIMESTAMP, WATERMARK FOR ts);
        CREATE MATERIALIZED VIEW sums AS SELECT g, sum(v) AS total, min(v) AS low FROM t GROUP BY g;
        CREATE MATERIALIZED VIEW joined AS SELECT t.k, u.name FROM t JOIN u ON t.g = u.g;
        CREATE MATERIALIZED VIEW used AS SELECT name FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.g = u.g AND t.v >= 0);
        CREATE MATERIALIZED VIEW best AS SELECT k, v FROM t ORDER BY v DESC LIMIT 3;
        CREATE STREAM bars AS SELECT k, window_end, count(*) AS n FROM s
          GROUP BY k, TUMBLE(ts, INTERVAL '1' MINUTE) EMIT ON WINDOW CLOSE;
    """)
    views = ("sums", "joined", "best", "used")
    assert all(kept(db, n) == (0, 0) for n in views)
    db.insert("u", [(f"g{i}", "x" * 10) for i in range(10)])
    db.insert("t", [(i, f"g{i % 10}", i) for i in range(100)])
    db.execute("INSERT INTO s VALUES ('a', TIMESTAMP '2026-01-01 00:00:01'), ('b', TIMESTAMP '2026-01-01 00:00:02')")
    db.flush(timeout=SOON_S)
    full = {n: kept(db, n) for n in views}
    # A group and its values; rows of both sides; rows and where the first three end; of the right side of EXISTS only the keys.
    assert {n: rows for n, (rows, _) in full.items()} == {"sums": 110, "joined": 110, "best": 101, "used": 20}
    assert all(rows * 8 < size < rows * 200 for rows, size in full.values())
    assert [o.name for o in db.metrics()["joined"].operators] == ["Join"]
    shown = {r["name"]: r for r in db.sql("SHOW QUERIES").arrow().to_pylist()}
    assert shown["joined"]["state_bytes"] == full["joined"][1] and shown["joined"]["warning"] is None
    # Values that are replaced are not counted twice, and what is taken out is not counted any more.
    db.insert("t", [(i, f"g{i % 10}", i) for i in range(100)])
    db.execute("UPDATE t SET v = v + 1 WHERE k < 50")
    db.execute("UPDATE t SET v = v - 1 WHERE k < 50")
    db.flush(timeout=SOON_S)
    assert {n: kept(db, n) for n in views} == full
    db.close()
    db = opener(tmp_path / "data")
    db.execute("DELETE FROM t WHERE k >= 10")
    db.flush(timeout=SOON_S)
    part = {n: kept(db, n) for n in views}
    assert {n: rows for n, (rows, _) in part.items()} == {"sums": 20, "joined": 20, "best": 11, "used": 20}
    assert all(0 < part[n][1] < full[n][1] for n in views[:3])
    db.execute("INSERT INTO s VALUES ('c', TIMESTAMP '2026-01-01 00:00:03')")
    db.execute("DELETE FROM t; DELETE FROM u")
    db.flush(timeout=SOON_S)
    assert all(kept(db, n) == (0, 0) for n in views)
    assert kept(db, "bars")[0] == 3
    db.execute("INSERT INTO s VALUES ('c', TIMESTAMP '2026-01-01 00:02:00')")
    db.flush(timeout=SOON_S)
    assert len(db.sql("SELECT * FROM bars").fetchall()) == 3


def test_a_limit_warns_and_then_fails_this_query_alone(
    opener: Opener, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    db = opener(tmp_path / "data")
    db.execute("""
        CREATE SOURCE s (k STRING, v BIGINT);
        CREATE MATERIALIZED VIEW small AS SELECT k, count(*) AS n FROM s GROUP BY k WITH (max_state_bytes = '2kb');
        CREATE MATERIALIZED VIEW free AS SELECT k, count(*) AS n FROM s GROUP BY k;
    """)
    with pytest.raises(penstock.PenstockError, match="PSK-1011"):
        db.execute("CREATE STREAM x AS SELECT DISTINCT k FROM s WITH (max_state_bytes = 'much')")
    with pytest.raises(penstock.PenstockError, match="PSK-1012"):
        db.execute("CREATE STREAM x AS SELECT k FROM s WITH (max_state_bytes = '1mb')")
    db.insert("s", [("a" * 100, 1)])
    db.flush(timeout=SOON_S)
    assert db.metrics()["small"].warning is None
    with caplog.at_level(logging.WARNING, logger="penstock"):
        db.insert("s", [(f"{i}" * 200, 1) for i in range(8)])
        db.flush(timeout=SOON_S)
        assert "% of its max_state_bytes (2048)" in (db.metrics()["small"].warning or "")
        db.insert("s", [("9" * 20, 1)])
        db.flush(timeout=SOON_S)
    assert sum("small keeps" in r.message for r in caplog.records) == 1
    changes = db.subscribe("small")
    db.insert("s", [("b" * 1000, 1)])
    with pytest.raises(penstock.PenstockError, match=r"PSK-7006: Not everything can catch up: small: .*allows 2048"):
        db.flush(timeout=SOON_S)
    with pytest.raises(penstock.PenstockError, match=r"PSK-4002.*max_state_bytes allows 2048"):
        changes.next(timeout=SOON_S)
    status = db.metrics()
    assert status["small"].state == "failed" and "PSK-4002" in (status["small"].error or "")
    assert status["free"].state == "running"
    assert db.sql("SELECT count(*) AS n FROM free").fetchone() == (11,)
    with pytest.raises(penstock.PenstockError, match="PSK-7006: small cannot be read: small has failed since"):
        db.sql("SELECT count(*) AS n FROM small")
    assert db.sql("SELECT count(*) AS n FROM small WITH (stale = true)").fetchone() == (10,)
    db.close()
    db = opener(tmp_path / "data")
    db.insert("s", [("c", 1)])
    with pytest.raises(penstock.PenstockError, match="PSK-7006: Not everything can catch up: small"):
        db.flush(timeout=SOON_S)
    assert db.metrics()["small"].state == "failed"
    assert db.sql("SELECT count(*) AS n FROM free").fetchone() == (12,)


def test_rows_of_a_join_are_forgotten_by_the_wall_clock(opener: Opener, tmp_path: Path) -> None:
    db = opener(tmp_path / "data")
    db.execute("""
        CREATE SOURCE l (k STRING, v BIGINT);
        CREATE SOURCE r (k STRING, w BIGINT);
        CREATE STREAM long AS SELECT l.k, l.v, r.w FROM l JOIN r ON l.k = r.k WITH (state_ttl = '1 hour');
        CREATE STREAM short AS SELECT l.k, l.v, r.w FROM l LEFT JOIN r ON l.k = r.k WITH (state_ttl = '2 seconds');
    """)
    db.insert("l", [("a", 1), ("b", 2)])
    db.flush(timeout=SOON_S)
    job = db._engine.jobs.by_object[db._object("long").id]
    epochs = job.kernel.position[2]
    assert kept(db, "long")[0] == 2
    until(lambda: kept(db, "short") == (0, 0))
    assert job.kernel.position[2] == epochs, "a query whose rows expire does not run epochs for nothing"
    db.insert("r", [("a", 7)])
    db.flush(timeout=SOON_S)
    assert db.sql("SELECT k, v, w FROM long").fetchall() == [("a", 1, 7)]
    # What was put out stays: the rows of l are forgotten, not taken back.
    assert sorted(db.sql("SELECT k, v, w FROM short").fetchall()) == [("a", 1, None), ("b", 2, None)]
    db.close()
    db = opener(tmp_path / "data")
    db.insert("r", [("b", 8)])
    db.flush(timeout=SOON_S)
    assert sorted(db.sql("SELECT k, v, w FROM long").fetchall()) == [("a", 1, 7), ("b", 2, 8)]
    assert kept(db, "long")[0] == 4


def test_functions_belong_to_their_database(opener: Opener) -> None:
    a, b = opener(), opener()
    for db, result in ((a, 1), (b, 2)):
        db.register_function(lambda x, result=result: result, "mine", "bigint")
        db.execute("CREATE SOURCE s (k STRING); CREATE MATERIALIZED VIEW v AS SELECT mine(k) AS m FROM s")
    a.register_function(lambda x: x, "only_a")
    for db, result in ((a, 1), (b, 2)):
        db.insert("s", [("x",)])
        db.flush(timeout=SOON_S)
        assert db.sql("SELECT m, mine(m) AS n FROM v").fetchall() == [(result, result)]
    with pytest.raises(penstock.PenstockError, match="PSK-1006"):
        b.execute("CREATE STREAM w AS SELECT only_a(k) AS k FROM s")


def test_closing_windows_go_on_when_their_limit_is_raised(db: penstock.Database) -> None:
    """Their rows are final, so they could not be computed again."""
    select = "SELECT k, count(*) AS n FROM s GROUP BY k, TUMBLE(ts, INTERVAL '1' HOUR) EMIT ON WINDOW CLOSE"
    db.execute("CREATE SOURCE s (k INT, ts TIMESTAMP, WATERMARK FOR ts)")
    db.execute(f"CREATE STREAM w AS {select} WITH (max_state_bytes = '4kb')")
    assert "job: its own, because its state has a limit" in db.explain(
        f"CREATE STREAM x AS {select} WITH (max_state_bytes = '4kb')"
    )
    db.insert("s", [(1, datetime(2026, 1, 1, 0, 1)), (2, datetime(2026, 1, 1, 0, 2))])
    db.flush()
    db.insert("s", [(k, datetime(2026, 1, 1, 0, 3)) for k in range(1, 2000)])
    with pytest.raises(penstock.PenstockError, match=r"max_state_bytes allows 4096"):
        db.flush()
    db.execute(f"ALTER STREAM w AS {select} WITH (max_state_bytes = '4mb')")
    db.insert("s", [(0, datetime(2026, 1, 1, 1))])
    db.flush()
    assert db.sql("SELECT n, count(*) FROM w GROUP BY n ORDER BY n").fetchall() == [(1, 1997), (2, 2)]


def test_a_query_that_has_ended_has_no_state_open(opener: Opener, tmp_path: Path) -> None:
    """The store's upkeep would write to it, and remove from it what is old, while the folder goes back to a checkpoint."""
    db = opener(tmp_path / "data")
    db.execute("""
        CREATE SOURCE s (k BIGINT, v BIGINT);
        CREATE MATERIALIZED VIEW m AS SELECT k, max(v) AS v FROM s GROUP BY k EMIT EVERY INTERVAL '20' MILLISECOND;
    """)
    db.insert("s", [(k, k) for k in range(100)])
    db.flush(timeout=SOON_S)
    info = db._engine.catalog.get("m")
    assert info is not None
    run = db._engine.jobs.by_object[info.id].kernel._query.runId
    java = db.spark._jvm
    stores = java.org.apache.spark.sql.execution.streaming.state
    checkpoint = tmp_path / "data" / "jobs" / str(info.id) / "checkpoint"
    states = [
        stores.StateStoreProviderId(
            stores.StateStoreId(f"file:{checkpoint}/state", 0, int(part.name), "default"),
            java.java.util.UUID.fromString(run),
        )
        for part in (checkpoint / "state" / "0").iterdir()
        if part.name.isdecimal()
    ]
    assert any(stores.StateStore.isLoaded(id) for id in states)
    db.execute("STOP PIPELINE")
    assert not any(stores.StateStore.isLoaded(id) for id in states)
    db.execute("START PIPELINE")
    db.insert("s", [(1, 1000)])
    db.flush(timeout=SOON_S)
    assert db.sql("SELECT v FROM m WHERE k = 1").fetchall() == [(1000,)]
