"""Connectors that are held."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.connect.test_websocket import server
from tests.unit.runtime.alignment.sources import (
    put,
    shown,
    source,
    times,
)
from tests.unit.runtime.engines import Database, database
from tests.unit.runtime.storing import eventually
from websockets.sync.server import ServerConnection


def feeding(*rows: int) -> Callable[[ServerConnection], None]:
    """Sends a row with each time, one after the other, and then nothing."""

    def handler(connection: ServerConnection) -> None:
        for ts in rows:
            connection.send(f'{{"k": 0, "ts": {ts}}}')
        for _ in connection:
            pass

    return handler


def test_a_connector_is_not_read_on(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.connect.websocket._MAX_BATCH", 1)
    every = range(0, 1200, 5)
    with server(feeding(*every)) as url:
        db.run(source("b"))
        put(db, "b", 0)
        db.run(source("a", feed=f"FROM WEBSOCKET (url = '{url}', format = 'json')"))
        db.run("SET engine.drift_timeout_ms = 1")  # A connector waits for as long as it takes.
        db.run("START PIPELINE")
        eventually(lambda: shown(db, "a").state == "paused", "a is not held")
        assert times(db, "a") == [0, 5, 10, 15] and shown(db, "a").held_back_by == "b"
        assert shown(db, "a").error is None and shown(db, "a").rows == 4
        put(db, "b", 1000)
        eventually(lambda: shown(db, "a").state == "paused" and shown(db, "a").watermark == 1015, "a is not held again")
        assert times(db, "a") == list(range(0, 1016, 5))
        put(db, "b", 10_000)
        eventually(lambda: shown(db, "a").rows == 240, "not all rows came")
        assert times(db, "a") == list(every) and shown(db, "a").state == "connected"
        db.run("DROP SOURCE a")


@pytest.mark.parametrize("how", ["STOP PIPELINE", "close"])
def test_a_connector_that_is_stopped_keeps_what_it_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("penstock.connect.websocket._MAX_BATCH", 1)
    monkeypatch.setattr("penstock.connect.websocket._CLOSE_SECONDS", 0.05)
    with server(feeding(*range(0, 500, 5))) as url:
        with database(tmp_path, monkeypatch) as db:
            db.run(source("b"))
            put(db, "b", 0)
            db.run(source("a", feed=f"FROM WEBSOCKET (url = '{url}', format = 'json')"))
            db.run("START PIPELINE")
            eventually(lambda: shown(db, "a").state == "paused", "a is not held")
            if how != "close":
                db.run(how)
                assert times(db, "a") == [0, 5, 10, 15, 20]
        with database(tmp_path, monkeypatch) as db:
            assert times(db, "a") == [0, 5, 10, 15, 20]
