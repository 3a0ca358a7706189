"""A producer that is faster than the queries."""

from __future__ import annotations

import pytest

import penstock


def test_a_fast_producer_is_held_and_nothing_is_lost(db: penstock.Database) -> None:
    db.execute("""
        CREATE SOURCE s (k BIGINT) WITH (max_pending_rows = 1000);
        CREATE MATERIALIZED VIEW v AS SELECT k % 10 AS r, count(*) AS n FROM s GROUP BY k % 10;
    """)
    source = db.source("s")
    assert (source.capacity, source.pending) == (1000, 0)
    most = 0
    for i in range(60):
        source.insert([(k,) for k in range(i * 100, i * 100 + 100)])
        most = max(most, source.pending)
    db.flush(timeout=120)
    assert most <= 1000 + 100
    assert source.pending == 0 and not source.is_backpressured
    assert db.sql("SELECT r, n FROM v ORDER BY r").fetchall() == [(r, 600) for r in range(10)]


def test_a_source_that_rejects_names_the_query_that_is_behind(db: penstock.Database) -> None:
    db.execute("""
        CREATE SOURCE s (k BIGINT, ts TIMESTAMP) WITH (max_pending_rows = 2, on_full = 'reject');
        CREATE STREAM t AS SELECT k, count(*) AS n FROM s GROUP BY k EMIT EVERY INTERVAL '1' HOUR;
    """)
    db.insert("s", [(1, None), (2, None)])
    with pytest.raises(penstock.PenstockError, match="PSK-5020: s is full: t has not processed 2 rows"):
        db.insert("s", [(3, None)])
    db.execute("DROP STREAM t")
    db.insert("s", [(3, None)])
