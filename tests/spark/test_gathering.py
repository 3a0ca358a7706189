"""A query that emits only closed windows gathers rows: nobody has to wait for them, and nobody notices."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import pytest
from tests.spark.conftest import CONFIG, Opener
from tests.spark.following import SOON_S

import penstock

START = datetime(2026, 1, 5, 9, 30)
# Longer than any test takes: whatever comes sooner has not waited for it.
FOR_EVER = {**CONFIG, "engine.gather_ms": 3_600_000}
SQL = """
CREATE SOURCE s (k STRING, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts) {options};
CREATE MATERIALIZED VIEW w AS SELECT k, window_start, sum(v) AS total FROM s
  GROUP BY k, TUMBLE(ts, INTERVAL '10' SECOND) EMIT ON WINDOW CLOSE LATE DATA TO late;
"""


def at(second: float, value: int = 1) -> dict[str, object]:
    return {"k": "a", "v": value, "ts": START + timedelta(seconds=second)}


def epochs(db: penstock.Database) -> int:
    """How many epochs of the view had rows or closed something."""
    return db._engine.jobs.by_object[db._object("w").id].figures.computing.count


@pytest.fixture
def db(opener: Opener) -> penstock.Database:
    made = opener(config=FOR_EVER)
    made.execute(SQL.format(options=""))
    made.insert("s", [at(0)])
    made.flush()
    return made


def test_rows_of_an_open_window_wait_for_each_other(db: penstock.Database) -> None:
    before = epochs(db)
    for number in range(20):
        db.insert("s", [at(1 + number / 10)])
    assert epochs(db) == before
    db.flush()
    # One with the rows, and one that applies their watermark.
    assert epochs(db) - before <= 2


def test_a_window_closes_at_once(db: penstock.Database) -> None:
    with db.subscribe("w") as changes:
        db.insert("s", [at(5, 2)])
        db.insert("s", [at(10)])
        change = changes.next(SOON_S)
        assert change is not None
        assert [r["total"] for r in change.rows()] == [3]
        # Rows of one commit close two windows.
        db.insert("s", [at(12), at(31)])
        change = changes.next(SOON_S)
        assert change is not None
        assert [r["total"] for r in change.rows()] == [2]


def test_a_read_does_not_wait(db: penstock.Database) -> None:
    db.insert("s", [at(4, 6)])
    db.insert("s", [at(20)])
    assert db.sql("SELECT total FROM w").fetchall() == [(7,)]


def test_many_rows_are_read_at_once(db: penstock.Database) -> None:
    before, deadline = epochs(db), time.monotonic() + SOON_S
    db.insert("s", [at(1)] * 50_000)
    while epochs(db) == before:
        assert time.monotonic() < deadline


def test_a_source_with_a_limit_is_read_at_once(opener: Opener) -> None:
    db = opener(config=FOR_EVER)
    db.execute(SQL.format(options="WITH (max_pending_rows = '2')"))
    for number in range(6):
        db.insert("s", [at(number / 10), at(number / 10)])
    db.insert("s", [at(10)])
    assert db.sql("SELECT total FROM w").fetchall() == [(12,)]


def test_late_rows_come_in_time(opener: Opener) -> None:
    db = opener()
    db.execute(SQL.format(options=""))
    db.insert("s", [at(0), at(20)])
    db.flush()
    with db.subscribe("late") as changes:
        db.insert("s", [at(1, 9)])
        change = changes.next(SOON_S)
    assert change is not None
    assert [r["v"] for r in change.rows()] == [9]
