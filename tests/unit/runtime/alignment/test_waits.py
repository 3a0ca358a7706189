"""What ends the wait of a source, and the time that passes meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.runtime.alignment.sources import (
    Waiting,
    apart,
    mark,
    put,
    refused,
    shown,
    source,
    times,
    waiting,
)
from tests.unit.runtime.engines import Database, database
from tests.unit.runtime.storing import eventually

from penstock.errors import PenstockError
from penstock.log import Part


def test_rows_wait_until_the_others_have_caught_up(db: Database) -> None:
    apart(db)
    with waiting(db, "a", lambda: put(db, "a", 101)):
        rows = {r["name"]: r for r in db.run("SHOW SOURCES").to_pylist()}
        assert (rows["a"]["state"], rows["a"]["held_back_by"], rows["a"]["drift_ms"]) == ("paused", "b", 50)
        put(db, "b", 89)
        assert shown(db, "a").state == "paused" and times(db, "a") == [40, 60, 100]
        put(db, "b", 90)
    assert times(db, "a") == [40, 60, 100, 101]


def test_a_watermark_by_hand_ends_a_wait(db: Database) -> None:
    apart(db)
    with waiting(db, "a", lambda: put(db, "a", 101)):
        mark(db, "b", 95)
    assert times(db, "a") == [40, 60, 100, 101]


@pytest.mark.parametrize("running", [True, False])
def test_an_idle_source_is_not_waited_for(db: Database, running: bool) -> None:
    db.run(source("a") + source("b", idle_timeout="200 milliseconds"))
    if running:
        db.run("START PIPELINE")
    put(db, "b", 50)
    put(db, "a", 100)
    put(db, "a", 1000)
    assert times(db, "a") == [100, 1000]
    # A source that comes back is waited for.
    put(db, "b", 60)
    with waiting(db, "a", lambda: put(db, "a", 2000)):
        put(db, "b", 1000)


def test_a_source_that_is_dropped_is_not_waited_for(db: Database) -> None:
    apart(db)
    with waiting(db, "a", lambda: put(db, "a", 101)):
        db.run("DROP SOURCE b")
    assert times(db, "a") == [40, 60, 100, 101] and shown(db, "a").drift_ms == 0


def test_the_source_that_waits_is_dropped(db: Database) -> None:
    apart(db)
    with pytest.raises(PenstockError, match="PSK-1002"), waiting(db, "a", lambda: put(db, "a", 101)):
        db.run("DROP SOURCE a")


def test_the_database_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with database(tmp_path, monkeypatch) as db:
        apart(db)
        work = Waiting(lambda: put(db, "a", 101))
        eventually(lambda: shown(db, "a").state == "paused", "a is not held")
    with pytest.raises(PenstockError, match="PSK-0004"):
        work.done()


def test_the_log_knows_the_watermarks_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with database(tmp_path, monkeypatch) as db:
        apart(db, on_drift="reject")
        db.run(source("c"))
        put(db, "c", 20)
        c = db.engine.writer.target("c")
        db.engine.storage.commit([Part(object_id=c.id, idle=True, column_count=2)])
    with database(tmp_path, monkeypatch) as db:
        assert shown(db, "a").held_back_by == "b"  # Not c, which is idle.
        refused(lambda: put(db, "a", 101))
        put(db, "b", 90)
        put(db, "a", 101)


def test_a_source_that_is_held_is_not_idle(db: Database) -> None:
    db.run(
        source("a", idle_timeout="200 milliseconds", columns="k BIGINT, ts BIGINT, WATERMARK FOR ts", watermark_per="k")
        + source("b")
        + source("z", watermark_group="other", idle_timeout="200 milliseconds")
    )
    db.run("START PIPELINE")
    put(db, "b", 50)
    db.insert("a", (1, 100), (2, 900))

    def idle(name: str) -> bool:
        last = db.engine.log.last_entry(db.engine.writer.target(name).id)
        return last is not None and last.idle

    with waiting(db, "a", lambda: db.insert("a", (2, 901))):
        # z has its commit after a, so a would be idle by then.
        put(db, "z", 1)
        eventually(lambda: idle("z"), "z is not idle")
        assert not idle("a") and shown(db, "a").watermark == 100
        put(db, "b", 100)
    assert shown(db, "a").watermark == 100  # Neither was the first value, which had no rows for as long.
    eventually(lambda: idle("a"), "a is not idle")
    assert shown(db, "a").watermark == 901
