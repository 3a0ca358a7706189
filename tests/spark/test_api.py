"""The Python API, call by call."""

from __future__ import annotations

import asyncio
import datetime as dt
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.spark.conftest import Opener
from tests.spark.following import SOON_S, Follower, rows_of

import penstock


def simple(db: penstock.Database) -> None:
    db.execute("""
        CREATE SOURCE s (k STRING, v BIGINT, ts TIMESTAMP);
        CREATE MATERIALIZED VIEW o AS SELECT k, v, ts FROM s;
    """)


def grouped(db: penstock.Database) -> None:
    db.execute("""
        CREATE SOURCE s (k STRING, v BIGINT);
        CREATE MATERIALIZED VIEW g AS SELECT k, sum(v) AS total FROM s GROUP BY k;
    """)


MOMENT = dt.datetime(2026, 1, 5, 9, 30, tzinfo=dt.UTC)
FORMS: dict[str, Any] = {
    "dicts": [{"k": "a", "v": 1, "ts": MOMENT}, {"V": 2, "K": "b"}],
    "tuples": [("a", 1, MOMENT), ("b", 2, None)],
    "arrow table": pa.table(
        {"k": ["a", "b"], "v": [1, 2], "ts": pa.array([MOMENT, None], pa.timestamp("us", tz="UTC"))}
    ),
    "record batch": pa.record_batch(
        {"v": [1, 2], "k": ["a", "b"], "ts": pa.array([MOMENT, None], pa.timestamp("ms", "UTC"))}
    ),
    "pandas": pd.DataFrame({"k": ["a", "b"], "v": [1, 2], "ts": [pd.Timestamp(MOMENT), pd.NaT]}),
    "polars": pl.DataFrame({"k": ["a", "b"], "v": [1, 2], "ts": [MOMENT, None]}),
    "ISO and epoch": [("a", 1, "2026-01-05T09:30:00Z"), ("b", 2, None)],
    "milliseconds": [("a", 1, int(MOMENT.timestamp() * 1000)), ("b", 2, None)],
}


def test_rows_in_every_form(db: penstock.Database) -> None:
    simple(db)
    follower = Follower(db, "o")
    for form, data in FORMS.items():
        db.insert("s", data)
        db.flush(timeout=SOON_S)
        assert follower.rows() == [("a", 1, int(MOMENT.timestamp() * 1000)), ("b", 2, None)], form
    db.insert("s", (("c", i, None) for i in range(3)))
    db.insert("s", pa.RecordBatchReader.from_batches(FORMS["record batch"].schema, [FORMS["record batch"]]))
    db.flush(timeout=SOON_S)
    assert len(follower.rows()) == 5


def test_lsns_grow_and_an_empty_insert_is_a_commit(db: penstock.Database) -> None:
    simple(db)
    lsns = [db.insert("s", [("a", i, None)]) for i in range(3)]
    assert lsns == sorted(set(lsns))
    assert db.insert("s", []) > lsns[-1]
    db.wait(lsns[-1])
    assert len(db.sql("SELECT * FROM o")) == 3


def test_results(db: penstock.Database, capsys: pytest.CaptureFixture[str]) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, name STRING)")
    db.insert("t", [(i, f"n<{i}>") for i in range(5)])
    query = "SELECT id, name FROM t ORDER BY id"
    every = [(i, f"n<{i}>") for i in range(5)]

    result = db.sql(query)
    assert result.columns == ["id", "name"]
    assert result.schema.field("id").type == pa.int32()
    assert result.fetchone() == every[0]
    assert result.fetchmany(2) == every[1:3]
    assert list(result) == every[3:]
    assert result.fetchone() is None
    assert result.fetchall() == []

    assert db.sql(query).fetchall() == every
    assert db.sql(query).arrow().num_rows == 5
    assert list(db.sql(query).df().columns) == ["id", "name"]
    assert db.sql(query).pl().rows() == every
    assert pa.table(db.sql(query)).to_pylist()[0] == {"id": 0, "name": "n<0>"}
    assert "n&lt;0&gt;" in db.sql(query)._repr_html_()
    db.sql(query).show()
    shown = capsys.readouterr().out
    assert "n<4>" in shown and "5 rows" in shown
    assert "n<4>" in repr(db.sql(query))


def test_parameters(db: penstock.Database) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, name STRING)")
    db.execute("INSERT INTO t VALUES (?, ?)", [1, "it's; here"])
    db.execute("INSERT INTO t VALUES (:id, :name)", {"id": 2, "name": None})
    assert db.sql("SELECT name FROM t WHERE id = ?", [1]).fetchone() == ("it's; here",)
    assert db.sql("SELECT count(*) AS n FROM t WHERE name IS NULL AND id = :id", {"id": 2}).fetchone() == (1,)
    assert db.sql("SELECT NULL AS a").fetchall() == [(None,)]
    with pytest.raises(penstock.PenstockError, match="PSK-1018"):
        db.sql("SELECT ? AS a", [])


def test_statements_that_look_around(db: penstock.Database) -> None:
    grouped(db)
    assert db.sql("SHOW SOURCES").fetchall()[0][0] == "s"
    assert [r[0] for r in db.sql("SHOW VIEWS").fetchall()] == ["g"]
    assert db.sql("SHOW STREAMS").fetchall() == []
    assert [r[:2] for r in db.sql("DESCRIBE g").fetchall()] == [("k", "string"), ("total", "bigint")]
    assert "sum(v)" in db.sql("SHOW CREATE MATERIALIZED VIEW g").fetchall()[0][0]
    assert any("watermark" in str(r) or "# kind" in str(r) for r in db.sql("DESCRIBE EXTENDED g").fetchall())
    assert "Aggregate" in db.explain("SELECT k, sum(v) AS t FROM s GROUP BY k")
    db.insert("s", [("a", 1)])
    db.flush(timeout=SOON_S)
    analyzed = db.explain("CREATE MATERIALIZED VIEW g AS SELECT k, sum(v) AS total FROM s GROUP BY k", analyze=True)
    assert "running as g" in analyzed
    assert [r[0] for r in db.sql("SHOW QUERIES").fetchall()] == ["g"]
    assert len(db.sql("SHOW CONNECTORS")) > 0


def test_subscribe_as_an_iterator(db: penstock.Database) -> None:
    grouped(db)
    subscription = db.subscribe("g")
    assert subscription.next(timeout=0) is None
    db.insert("s", [("a", 1)])
    db.insert("s", [("a", 2)])
    seen: list[tuple[Any, ...]] = []
    changes: list[penstock.Change] = []
    for change in subscription:
        changes.append(change)
        seen += rows_of(change)
        if ("a", 3, 1) in seen:
            break
    subscription.cancel()
    assert subscription.closed
    assert sum(r[-1] for r in seen) == 1
    assert [c.seq for c in changes] == list(range(1, len(changes) + 1))
    assert all(a.lsn == b.prev_lsn for a, b in pairwise(changes))
    assert changes[-1].rows()[-1] == {"k": "a", "total": 3, "__weight": 1}
    assert list(changes[-1].df().columns) == ["k", "total", "__weight"]


def test_snapshot_history_and_filters(db: penstock.Database) -> None:
    grouped(db)
    for k, v in (("a", 1), ("b", 2), ("a", 3)):
        db.insert("s", [(k, v)])
        db.flush(timeout=SOON_S)

    with db.subscribe("g", snapshot=True) as subscription:
        first = subscription.next(timeout=SOON_S)
        assert first is not None and first.kind == "snapshot"
        assert sorted(r[:2] for r in rows_of(first)) == [("a", 4), ("b", 2)]
        db.insert("s", [("b", 1)])
        db.flush(timeout=SOON_S)
        after = subscription.next(timeout=SOON_S)
        assert after is not None and rows_of(after) == [("b", 2, -1), ("b", 3, 1)]
        assert after.prev_lsn == first.lsn

    everything = Follower(db, "g", as_of=0).changes()
    assert [r for c in everything for r in rows_of(c)] == [
        ("a", 1, 1), ("b", 2, 1), ("a", 1, -1), ("a", 4, 1), ("b", 2, -1), ("b", 3, 1),
    ]  # fmt: skip
    second = everything[1].epoch
    part = list(db.subscribe("g", as_of=second, up_to=everything[2].epoch))
    assert [r for c in part for r in rows_of(c)] == [("b", 2, 1), ("a", 1, -1), ("a", 4, 1)]
    assert Follower(db, "g", as_of=0, where="k = 'b' AND total > 2").rows() == [("b", 3, 1)]
    with pytest.raises(penstock.PenstockError, match="PSK-1004"):
        db.subscribe("g", where="nope = 1")
    # Not for the store: a query of its own, which ends with its subscribers.
    queries = len(db.sql("SHOW QUERIES"))
    kept = [Follower(db, "g", snapshot=True, where=w) for w in ("crc32(k) = crc32('b')", "CRC32( k )=crc32('b')")]
    assert len(db.sql("SHOW QUERIES")) == queries + 1
    db.insert("s", [("a", 1), ("b", 1)])
    db.flush(timeout=SOON_S)
    assert [f.rows() for f in kept] == [[("b", 3, 1), ("b", 3, -1), ("b", 4, 1)]] * 2
    for f in kept:
        f.subscription.cancel()
    assert len(db.sql("SHOW QUERIES")) == queries
    with pytest.raises(penstock.PenstockError, match="PSK-5011"):
        db.subscribe("g", as_of=10_000)


def test_a_view_that_keeps_the_key_of_a_table_has_a_key(db: penstock.Database) -> None:
    db.execute("""
        CREATE TABLE t (a INT, b STRING, v INT, PRIMARY KEY (a, b));
        INSERT INTO t VALUES (1, 'x', 1), (1, 'y', 2), (2, 'x', 3);
        CREATE MATERIALIZED VIEW kept AS SELECT v * 10 AS ten, b AS second, a AS first FROM t WHERE v < 9;
        CREATE MATERIALIZED VIEW again AS SELECT ten + 1 AS more, first, second FROM kept;
        CREATE MATERIALIZED VIEW lost AS SELECT a, v FROM t;
        CREATE MATERIALIZED VIEW computed AS SELECT a + 0 AS a, b, v FROM t;
        FLUSH;
    """)
    keys = {
        n: [r[0] for r in db.sql(f"DESCRIBE {n}").fetchall() if r[3]] for n in ("kept", "again", "lost", "computed")
    }
    assert keys == {"kept": ["second", "first"], "again": ["first", "second"], "lost": [], "computed": []}
    upserts = Follower(db, "kept", envelope="upsert")
    db.execute("UPDATE t SET v = 5 WHERE a = 1 AND b = 'y'; UPDATE t SET v = 9 WHERE a = 2; FLUSH")
    assert set(upserts.rows()) == {(None, "x", 2, "delete"), (50, "y", 1, "upsert")}
    one = "SELECT ten FROM kept WHERE first = ? AND second = ?"
    assert [db.sql(one, [1, k]).fetchall() for k in ("x", "y", "z")] == [[(10,)], [(50,)], []]
    with pytest.raises(penstock.PenstockError, match="PSK-1011"):
        db.subscribe("lost", envelope="upsert")
    # What readers rely on stays, or the query is refused.
    db.execute("ALTER MATERIALIZED VIEW kept AS SELECT v * 100 AS ten, b AS second, a AS first FROM t REBUILD; FLUSH")
    assert db.sql(one, [1, "y"]).fetchall() == [(500,)]
    with pytest.raises(penstock.PenstockError, match=r"PSK-1012.*key"):
        db.execute("""
            ALTER MATERIALIZED VIEW kept AS
              SELECT v AS ten, b AS second, a AS first FROM t UNION ALL SELECT v, b, a FROM t REBUILD
        """)


def test_envelopes(db: penstock.Database) -> None:
    grouped(db)
    upserts = Follower(db, "g", envelope="upsert")
    debezium = db.subscribe("g", envelope="debezium")
    db.insert("s", [("a", 1)])
    db.flush(timeout=SOON_S)
    db.insert("s", [("a", 2)])
    db.flush(timeout=SOON_S)
    assert upserts.rows() == [("a", 1, "upsert"), ("a", 3, "upsert")]
    first, second = debezium.next(timeout=SOON_S), debezium.next(timeout=SOON_S)
    assert first is not None and second is not None
    assert {k: v for k, v in first.rows()[0].items() if k != "ts_ms"} == {
        "before": None, "after": {"k": "a", "total": 1}, "op": "c",
    }  # fmt: skip
    assert second.rows()[0]["op"] == "u"
    assert second.rows()[0]["before"] == {"k": "a", "total": 1}
    debezium.cancel()


def test_any_number_of_subscribers_each_get_everything(db: penstock.Database) -> None:
    grouped(db)
    followers = [Follower(db, "g") for _ in range(8)]
    for i in range(3):
        db.insert("s", [("a", 1), ("b", i)])
        db.flush(timeout=SOON_S)
    (first, *others) = [f.rows() for f in followers]
    assert len(first) > 0
    assert all(rows == first for rows in others)
    assert db.metrics()["g"].subscribers == 8


def test_subscribe_to_a_select(db: penstock.Database) -> None:
    grouped(db)
    with db.subscribe("SELECT k, count(*) AS n FROM s GROUP BY k") as subscription:
        db.insert("s", [("a", 1), ("a", 2)])
        db.flush(timeout=SOON_S)
        change = subscription.next(timeout=SOON_S)
        assert change is not None and rows_of(change) == [("a", 2, 1)]
    assert [s.name for s in db.status()] == ["s", "g"]


def test_callback(db: penstock.Database) -> None:
    grouped(db)
    got: list[penstock.Change] = []
    arrived = threading.Event()

    def on_change(change: penstock.Change) -> None:
        got.append(change)
        arrived.set()

    subscription = db.subscribe("g", on_change=on_change)
    db.insert("s", [("a", 1)])
    assert arrived.wait(SOON_S)
    assert rows_of(got[0]) == [("a", 1, 1)]
    subscription.cancel()
    assert subscription.join(SOON_S)


def test_async(opener: Opener) -> None:
    async def follow() -> list[tuple[Any, ...]]:
        db = await penstock.open_async(master="local[2]", config={"spark.heap": "2g"})
        try:
            await asyncio.to_thread(grouped, db)
            changes = await db.subscribe_async("g")
            await asyncio.to_thread(db.insert, "s", [("a", 1)])
            async for change in changes:
                return rows_of(change)
            return []
        finally:
            await asyncio.to_thread(db.close)

    assert asyncio.run(follow()) == [("a", 1, 1)]


def test_cursors(db: penstock.Database) -> None:
    grouped(db)
    db.execute("DECLARE c CURSOR FOR SUBSCRIBE g")
    db.insert("s", [("a", 1)])
    db.flush(timeout=SOON_S)
    assert db.sql("FETCH ALL FROM c").fetchall() == [("a", 1, 1)]
    db.execute("CLOSE c")
    with pytest.raises(penstock.PenstockError, match="PSK-1002"):
        db.execute("FETCH 1 FROM c")


def test_a_transaction_is_one_commit_in_every_view(db: penstock.Database) -> None:
    db.execute("""
        CREATE TABLE accounts (id INT PRIMARY KEY, owner STRING);
        CREATE TABLE money (id INT PRIMARY KEY, amount BIGINT);
        CREATE MATERIALIZED VIEW total AS SELECT sum(amount) AS s, count(*) AS n FROM money;
    """)
    with db.transaction() as t:
        t.insert("accounts", [(1, "a"), (2, "b")])
        t.insert("money", [(1, 100), (2, 0)])
    assert t.lsn is not None
    db.flush(timeout=SOON_S)
    follower = Follower(db, "total")
    for _ in range(3):
        db.execute("""
            BEGIN;
            UPDATE money SET amount = CASE id WHEN 1 THEN amount - 10 ELSE amount + 10 END;
            COMMIT;
        """)
    db.flush(timeout=SOON_S)
    assert follower.rows() == []
    assert db.sql("SELECT * FROM total").fetchall() == [(100, 2)]
    assert db.sql("SELECT amount FROM money ORDER BY id").fetchall() == [(70,), (30,)]

    def gives_up() -> None:
        with db.transaction() as given_up:
            given_up.insert("money", [(3, 1)])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        gives_up()
    db.execute("BEGIN; INSERT INTO money VALUES (4, 1); ROLLBACK")
    db.flush(timeout=SOON_S)
    assert db.sql("SELECT count(*) AS n FROM money").fetchone() == (2,)


def test_statements_of_a_transaction_see_its_writes(db: penstock.Database) -> None:
    db.execute("""
        CREATE TABLE t (id INT PRIMARY KEY, v INT);
        CREATE TABLE bag (v INT, tags ARRAY<INT>);
        CREATE SOURCE s (v INT);
        CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n, sum(v) AS s FROM t;
        INSERT INTO t VALUES (1, 10), (2, 20);
        INSERT INTO bag VALUES (1, array(1)), (1, array(1)), (NULL, NULL);
    """)
    db.flush(timeout=SOON_S)
    follower = Follower(db, "total")
    db.execute("""
        BEGIN;
        INSERT INTO t VALUES (3, 30);
        UPDATE t SET v = v + 1;
        DELETE FROM t WHERE v = 11;
        INSERT INTO t SELECT id + 10, v * 2 FROM t WHERE id = 3;
        UPDATE t SET v = 0 WHERE id IN (SELECT id FROM t WHERE v > 60);
        INSERT INTO s VALUES (7);
        INSERT INTO bag SELECT v, NULL FROM s;
        DELETE FROM bag WHERE v = 1;
    """)
    assert sorted(db.sql("SELECT * FROM t").fetchall()) == [(2, 21), (3, 31), (13, 0)]
    assert sorted(db.sql("SELECT v FROM bag WHERE v IS NOT NULL").fetchall()) == [(7,)]
    db.flush(timeout=SOON_S)
    assert db.sql("SELECT * FROM total").fetchall() == [(2, 30)]
    db.execute("COMMIT")
    db.flush(timeout=SOON_S)
    assert follower.rows() == [(2, 30, -1), (3, 52, 1)]
    assert sorted(db.sql("SELECT * FROM t").fetchall()) == [(2, 21), (3, 31), (13, 0)]
    assert db.sql("SELECT count(*) AS n, max(v) AS m FROM bag").fetchall() == [(2, 7)]

    with db.transaction() as t:
        t.insert("t", [(4, 1)])
        t.execute("UPDATE t SET v = 40 WHERE id = 4; DELETE FROM t WHERE id = 13")
    db.execute("BEGIN; DELETE FROM t; ROLLBACK")
    assert sorted(db.sql("SELECT * FROM t").fetchall()) == [(2, 21), (3, 31), (4, 40)]

    # A statement that breaks a constraint is refused; the transaction goes on without it.
    db.execute("BEGIN; INSERT INTO t VALUES (5, 50)")
    for wrong in ("UPDATE t SET id = 2", "UPDATE t SET id = NULL WHERE id = 5", "UPDATE t SET id = 4 WHERE id = 5"):
        with pytest.raises(penstock.PenstockError, match=r"PSK-500[36]"):
            db.execute(wrong)
    db.execute("UPDATE t SET id = id + 1; COMMIT")
    assert sorted(db.sql("SELECT * FROM t").fetchall()) == [(3, 21), (4, 31), (5, 40), (6, 50)]

    # What another commit has changed meanwhile refuses the whole transaction.
    db.execute("BEGIN; INSERT INTO s VALUES (8); DELETE FROM t WHERE id = 3")
    db.insert("t", [(3, 99)])
    with pytest.raises(penstock.PenstockError, match="PSK-5008"):
        db.execute("COMMIT")
    assert db.sql("SELECT count(*) AS n FROM s").fetchall() == [(1,)]
    with pytest.raises(penstock.PenstockError, match="PSK-0006"):
        db.execute("ROLLBACK")


def test_updates_from_several_threads_all_count(db: penstock.Database) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 0)")
    with ThreadPoolExecutor(3) as threads:
        for one in [threads.submit(db.execute, "UPDATE t SET v = v + 1") for _ in range(6)]:
            one.result()
    assert db.sql("SELECT v FROM t").fetchall() == [(6,)]


def test_a_source_handle(db: penstock.Database) -> None:
    db.execute("""
        CREATE SOURCE s (k STRING, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND);
        CREATE STREAM o AS SELECT k, ts FROM s;
    """)
    source = db.source("s")
    assert source.current_watermark is None
    source.insert([("a", 5000)])
    assert source.current_watermark == 4000
    source.watermark(7000)
    assert source.current_watermark == 7000
    source.watermark(6000)
    assert source.current_watermark == 7000
    assert [c.name for c in source.schema] == ["k", "ts"]
    db.flush(timeout=SOON_S)
    assert source.pending == 0
    assert not source.is_backpressured
    with source.writer(max_rows=2) as writer:
        for i in range(5):
            writer.write(("b", 8000 + i))
    db.flush(timeout=SOON_S)
    assert len(db.sql("SELECT * FROM o")) == 6
    assert source.insert_json(['{"k": "c", "ts": 9000}']) > 0
    db.flush(timeout=SOON_S)
    assert ("c", 9000) in db.sql("SELECT * FROM o").fetchall()


def test_rows_without_time_are_dropped_and_counted(db: penstock.Database) -> None:
    db.execute("""
        CREATE SOURCE s (k STRING, ts BIGINT, WATERMARK FOR ts);
        CREATE STREAM o AS SELECT k, ts FROM s;
    """)
    db.insert("s", [("a", 1), ("b", None), ("c", None)])
    db.flush(timeout=SOON_S)
    assert db.sql("SELECT * FROM o").fetchall() == [("a", 1)]
    assert db.metrics()["s"].dropped_null_time == 2


def test_rows_from_the_far_future_do_not_move_the_watermark(db: penstock.Database) -> None:
    now = int(dt.datetime.now(dt.UTC).timestamp() * 1000)
    db.execute("CREATE SOURCE s (ts BIGINT, WATERMARK FOR ts)")
    db.execute("CREATE SOURCE free (ts BIGINT, WATERMARK FOR ts) WITH (max_future_skew = 'off')")
    far = now + 3_600_000
    for name in ("s", "free"):
        db.insert(name, [(now,), (far,)])
    assert db.source("s").current_watermark == now
    assert db.source("free").current_watermark == far
    assert db.metrics()["s"].future_rows == 1


def test_late_rows_are_counted_and_delivered(db: penstock.Database) -> None:
    db.execute("""
        CREATE SOURCE s (v BIGINT, ts BIGINT, WATERMARK FOR ts);
        CREATE STREAM o AS SELECT count(*) AS n FROM s GROUP BY TUMBLE(ts, INTERVAL '1' SECOND)
          LATE DATA TO missed EMIT ON WINDOW CLOSE;
    """)
    db.insert("s", [(1, 100), (2, 5000)])
    db.flush(timeout=SOON_S)
    db.insert("s", [(3, 200), (4, 4999), (5, 5500)])
    db.flush(timeout=SOON_S)
    assert sorted(db.sql("SELECT * FROM missed").fetchall()) == [(3, 200), (4, 4999)]
    assert db.metrics()["o"].late_rows == 2


def test_metrics_topology_and_status(db: penstock.Database) -> None:
    grouped(db)
    db.insert("s", [("a", 1), ("b", 2)])
    db.flush(timeout=SOON_S)
    metrics = db.metrics()
    assert metrics["s"].rows == 2
    assert metrics["g"].rows == 2
    assert metrics["g"].state == "running"
    assert metrics["g"].error is None
    topology = db.topology()
    assert [(n.name, n.kind) for n in topology.nodes] == [("s", "source"), ("g", "materialized view")]
    assert topology.edges == (("s", "g"),)
    assert db.state == "Running"


def test_python_functions_in_sql(db: penstock.Database) -> None:
    db.execute("CREATE SOURCE s (k STRING, v BIGINT)")

    def twice(value: int) -> int:
        return value * 2

    db.register_function(twice, returns="bigint")
    db.execute("CREATE MATERIALIZED VIEW o AS SELECT k, twice(v) AS w FROM s")
    db.insert("s", [("a", 21)])
    db.flush(timeout=SOON_S)
    assert db.sql("SELECT k, w, twice(w) AS x FROM o").fetchall() == [("a", 42, 84)]


def test_select_reads_views_tables_sources_and_streams(db: penstock.Database) -> None:
    db.execute("""
        CREATE SOURCE s (k STRING, v BIGINT);
        CREATE TABLE names (k STRING PRIMARY KEY, name STRING);
        CREATE STREAM big AS SELECT k, v FROM s WHERE v > 1;
        CREATE STREAM sums AS SELECT k, sum(v) AS t FROM s GROUP BY k;
        CREATE MATERIALIZED VIEW g AS SELECT k, sum(v) AS total FROM s GROUP BY k;
    """)
    db.insert("names", [("a", "Anna"), ("b", "Bert")])
    db.insert("s", [("a", 1), ("b", 2), ("a", 3)])
    db.flush(timeout=SOON_S)
    assert db.sql("SELECT count(*) AS n, sum(v) AS t FROM s").fetchall() == [(3, 6)]
    assert sorted(db.sql("SELECT * FROM big").fetchall()) == [("a", 3), ("b", 2)]
    assert sorted(db.sql("SELECT * FROM sums").fetchall()) == [("a", 4), ("b", 2)]
    joined = "SELECT n.name, g.total FROM g JOIN names n ON g.k = n.k WHERE g.total > 2 ORDER BY 1"
    assert db.sql(joined).fetchall() == [("Anna", 4)]
    assert db.sql("SELECT 1 + 1 AS two").fetchall() == [(2,)]
    db.execute("INSERT INTO s SELECT k, total * 10 FROM g")
    db.flush(timeout=SOON_S)
    assert sorted(db.sql("SELECT k, total FROM g").fetchall()) == [("a", 44), ("b", 22)]


def test_a_column_added_to_a_source(db: penstock.Database) -> None:
    grouped(db)
    db.insert("s", [("a", 1)])
    db.flush(timeout=SOON_S)
    db.execute("ALTER SOURCE s ADD COLUMN note STRING")
    db.insert("s", [{"k": "a", "v": 2, "note": "x"}])
    db.execute("CREATE MATERIALIZED VIEW notes AS SELECT k, v, note FROM s")
    db.insert("s", [("b", 3, "y")])
    db.flush(timeout=SOON_S)
    assert sorted(db.sql("SELECT * FROM g").fetchall()) == [("a", 3), ("b", 3)]
    assert sorted(db.sql("SELECT * FROM notes").fetchall(), key=str) == [("a", 1, None), ("a", 2, "x"), ("b", 3, "y")]
    db.execute("CREATE STREAM whole AS SELECT * FROM s")
    with pytest.raises(penstock.PenstockError, match="PSK-1009") as caught:
        db.execute("ALTER SOURCE s ADD COLUMN another INT")
    assert "whole" in caught.value.detail
    db.insert("s", [("c", 1, "z")])
    db.flush(timeout=SOON_S)
    assert ("c", 1) in db.sql("SELECT * FROM g").fetchall()


def calls(db: penstock.Database) -> Iterator[tuple[str, Any]]:
    yield "execute", lambda: db.execute("SELECT 1")
    yield "sql", lambda: db.sql("SELECT 1")
    yield "insert", lambda: db.insert("s", [])
    yield "source", lambda: db.source("s")
    yield "subscribe", lambda: db.subscribe("g")
    yield "transaction", lambda: db.transaction().__enter__()
    yield "flush", db.flush
    yield "wait", lambda: db.wait(1)
    yield "start", db.start
    yield "stop", db.stop
    yield "checkpoint", db.checkpoint
    yield "checkpoints", db.checkpoints
    yield "status", db.status
    yield "metrics", db.metrics
    yield "topology", db.topology
    yield "explain", lambda: db.explain("SELECT 1")
    yield "register_function", lambda: db.register_function(lambda x: x, "f")
    yield "spark", lambda: db.spark
    yield "watermark", lambda: db.watermark


def test_after_close_everything_but_close_raises(opener: Opener) -> None:
    db = opener()
    grouped(db)
    source = db.source("s")
    subscription = db.subscribe("g")
    db.close()
    db.close()
    assert db.state == "Closed"
    assert list(subscription) == []
    for name, call in [*calls(db), ("source.insert", lambda: source.insert([("a", 1)]))]:
        with pytest.raises(penstock.PenstockError) as caught:
            call()
        assert caught.value.code == "PSK-0004", name


def test_a_folder_belongs_to_one_process(opener: Opener, tmp_path: Path) -> None:
    db = opener(tmp_path / "data")
    grouped(db)
    with pytest.raises(penstock.PenstockError) as caught:
        opener(tmp_path / "data")
    assert caught.value.code == "PSK-0005"
    script = (
        "import sys, penstock\ntry:\n  penstock.open(sys.argv[1])\nexcept penstock.PenstockError as e:\n  print(e.code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "data")],
        capture_output=True, text=True, check=True, timeout=SOON_S, env={"PYTHONPATH": ":".join(p for p in sys.path if p)},
    )  # fmt: skip
    assert done.stdout.strip() == "PSK-0005"
    db.insert("s", [("a", 1)])
    db.flush(timeout=SOON_S)
    assert db.sql("SELECT * FROM g").fetchall() == [("a", 1)]


def test_many_threads(db: penstock.Database) -> None:
    grouped(db)
    follower = Follower(db, "g")

    def work(number: int) -> int:
        lsn = 0
        for i in range(10):
            lsn = db.insert("s", [(f"k{number}", i)])
            db.sql("SELECT count(*) AS n FROM g").fetchone()
        db.wait(lsn, timeout=SOON_S)
        ((total,),) = db.sql(f"SELECT total FROM g WHERE k = 'k{number}'").fetchall()
        return int(total)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [45] * 4
    db.flush(timeout=SOON_S)
    assert sum(r[1] * r[2] for r in follower.rows()) == 4 * 45


def test_flush_with_a_timeout(db: penstock.Database) -> None:
    grouped(db)
    db.stop()
    db.insert("s", [("a", 1)])
    with pytest.raises(penstock.PenstockError, match="PSK-7006: The pipeline is stopped, so g cannot catch up"):
        db.flush(timeout=SOON_S)
    db.start()
    db.execute("FLUSH")
    assert db.sql("SELECT * FROM g").fetchall() == [("a", 1)]
