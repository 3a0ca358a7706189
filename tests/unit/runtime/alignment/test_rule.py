"""Which rows of a watermark group are held, and what is done about them."""

from __future__ import annotations

import logging

import pytest
from tests.unit.runtime.alignment.sources import (
    apart,
    mark,
    put,
    refused,
    shown,
    source,
    times,
)
from tests.unit.runtime.engines import Database

from penstock.api.database import Transaction


def test_rows_are_judged_by_the_watermark_before_them(db: Database) -> None:
    db.run(source("a", on_drift="reject") + source("b", on_drift="reject") + source("c", watermark_group="other"))
    put(db, "a", 1)
    put(db, "a", 5000)  # b has no watermark: it holds nobody.
    put(db, "b", 0)
    refused(lambda: put(db, "a", 5001))
    refused(lambda: put(db, "a", 1))  # Older rows wait with it.
    put(db, "b", 4990)  # The slowest is never held, however much it brings.
    put(db, "a", 9000)  # 10 ahead is not more than 10, whatever comes.
    refused(lambda: put(db, "a", 9001))
    put(db, "b", 4991)
    put(db, "c", 1_000_000)  # A group of its own.
    put(db, "b", 9010)
    put(db, "b", 9010)
    put(db, "a", 9000)
    assert times(db, "a") == [1, 5000, 9000, 9000] and times(db, "b") == [0, 4990, 4991, 9010, 9010]
    assert (shown(db, "a").rows, shown(db, "b").rows) == (4, 5)


@pytest.mark.parametrize("span", [1, 10, 11, 1000])
def test_a_producer_of_both_sources_is_never_held_if_its_rounds_are_level(db: Database, span: int) -> None:
    """Whatever a round spans, and if one source stays behind by as much as is allowed."""
    db.run(source("a", on_drift="reject") + source("b", on_drift="reject"))
    for end in range(span, 6 * span, span):
        put(db, "a", end - span, end)
        put(db, "b", end - span, end - 10)


def test_a_watermark_by_hand_is_not_held(db: Database) -> None:
    apart(db, on_drift="reject")
    mark(db, "a", 200)
    mark(db, "b", 190)
    put(db, "a", 300)


def test_times_before_1970(db: Database) -> None:
    db.run(source("a", on_drift="reject") + source("b"))
    put(db, "b", -50)
    put(db, "a", 0)
    assert "0.05 s ahead of b" in str(refused(lambda: put(db, "a", 1)))
    with_both = Transaction(db.engine)
    with_both.insert("a", [(0, 10)])
    with_both.insert("b", [(0, 0)])
    with_both._commit()


def test_rows_are_refused_after_a_while(db: Database) -> None:
    apart(db)
    db.run("SET engine.drift_timeout_ms = 20")
    head = db.engine.log.head
    error = refused(lambda: put(db, "a", 101))
    assert error.detail == "a is 0.05 s ahead of b; watermark group 'g' allows 0.01 s. It has waited 0.02 s."
    for way in ("db.source('b').watermark(t)", "idle_timeout", "on_drift = 'warn'", "engine.drift_timeout_ms"):
        assert way in str(error)
    assert db.engine.log.head == head and shown(db, "a").state == "ready"
    assert shown(db, "a").drift_ms == 50 and shown(db, "a").held_back_by == "b"
    assert shown(db, "b").drift_ms == 0 and shown(db, "b").held_back_by is None


def test_rejected_rows_are_refused_at_once(db: Database) -> None:
    apart(db, on_drift="Reject")
    error = refused(lambda: put(db, "a", 101))
    assert error.detail == "a is 0.05 s ahead of b; watermark group 'g' allows 0.01 s."
    assert shown(db, "a").rows == 3
    put(db, "b", 90)
    put(db, "a", 101)


def test_a_warning(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "penstock.runtime.storage.alignment")
    apart(db, on_drift="warn")
    put(db, "a", 101)
    put(db, "a", 102)
    warning = "a is 0.052 s ahead of b; watermark group 'g' allows 0.01 s."
    assert shown(db, "a").warning == warning and shown(db, "a").held_back_by is None
    assert len(caplog.records) == 1 and "a is 0.05 s ahead of b" in caplog.text
    rows = {r["name"]: r for r in db.run("SHOW SOURCES").to_pylist()}
    assert rows["a"]["warning"] == warning and rows["a"]["drift_ms"] == 52
    put(db, "b", 100)
    assert shown(db, "a").warning is None
    put(db, "a", 120)
    put(db, "a", 121)
    assert len(caplog.records) == 2
