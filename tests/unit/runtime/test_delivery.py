"""The guarantee of a sink: what it can do, what it is asked for, what is refused, and what SHOW SINKS says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.runtime.engines import Database, database
from tests.unit.runtime.storing import eventually, settings

from penstock.config import Settings
from penstock.connect import register_callable
from penstock.errors import PenstockError
from penstock.runtime.connect import sinks as sinks_module

WEBSOCKET = "CREATE SOURCE w (k BIGINT) FROM WEBSOCKET (url = 'ws://127.0.0.1:9', 'reconnect.min' = '60')"


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    with database(tmp_path / "data", monkeypatch) as db:
        db.run("CREATE SOURCE s (k BIGINT); CREATE STREAM t AS SELECT k FROM s")
        sync(db)
        db.engine.start()
        yield db


def sync(db: Database, **sections: dict[str, object]) -> None:
    """The settings of the log and of delivery; the fake engine opens with an asynchronous log."""
    db.engine.storage.settings = settings(log={"wal_mode": "sync"}, **sections)


def shown(db: Database) -> dict[str, dict[str, Any]]:
    return {r["name"]: r for r in db.run("SHOW SINKS").to_pylist()}


def files(tmp_path: Path, name: str = "out") -> str:
    return f"INTO FILES (path = '{tmp_path / name}', format = 'json')"


def numbers(folder: Path) -> list[int]:
    return [json.loads(line)["k"] for f in sorted(folder.glob("epoch-*")) for line in f.read_text().splitlines()]


def test_a_sink_does_its_best_unless_it_is_asked(db: Database, tmp_path: Path) -> None:
    db.run(f"""
        CREATE SINK f FROM t {files(tmp_path)};
        CREATE SINK g FROM t {files(tmp_path, "g")} WITH (guarantee = 'at-least-once');
        CREATE SINK h FROM t {files(tmp_path, "h")} WITH (guarantee = 'exactly-once', write_timeout = '5 seconds');
        CREATE SINK c FROM t INTO CONSOLE (style = 'plain');
    """)
    assert {n: r["guarantee"] for n, r in shown(db).items()} == {
        "f": "exactly-once",
        "g": "at-least-once",
        "h": "exactly-once",
        "c": "at-least-once",
    }
    assert all(r["warning"] is None and r["error"] is None for r in shown(db).values())


def test_a_sink_that_cannot_is_refused(db: Database, tmp_path: Path) -> None:
    before = db.state()
    with pytest.raises(PenstockError, match="PSK-5031: c: CONSOLE cannot deliver exactly once"):
        db.run("CREATE SINK c FROM t INTO CONSOLE (style = 'plain') WITH (guarantee = 'exactly-once')")
    db.run("SET delivery.guarantee = 'exactly-once'")
    with pytest.raises(PenstockError, match="PSK-5031"):
        db.run("CREATE SINK c FROM t INTO CONSOLE (style = 'plain')")
    assert db.state() == before
    db.run("CREATE SINK c FROM t INTO CONSOLE (style = 'plain') WITH (guarantee = 'at-least-once')")


def test_a_source_that_cannot_replay_is_refused_or_warned_about(
    db: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    db.run(f"{WEBSOCKET}; CREATE STREAM x AS SELECT k FROM w; CREATE STREAM y AS SELECT k FROM x")
    for sink in ("FROM y", "FROM w"):
        with pytest.raises(PenstockError, match=r"PSK-5030: f reads w, and WEBSOCKET cannot replay rows"):
            db.run(f"CREATE SINK f {sink} {files(tmp_path)} WITH (guarantee = 'exactly-once')")
    db.run(f"CREATE SINK f FROM y {files(tmp_path)}")
    db.run(f"CREATE SINK g FROM y {files(tmp_path, 'g')} WITH (guarantee = 'at-least-once')")
    found = shown(db)
    assert found["f"]["guarantee"] == "exactly-once" and found["f"]["warning"].startswith("PSK-5033: f delivers")
    assert "PSK-5033" in caplog.text
    assert found["g"]["warning"] is None


def test_exactly_once_needs_a_synchronous_log(db: Database, tmp_path: Path) -> None:
    db.engine.storage.settings = settings()
    with pytest.raises(PenstockError, match="PSK-5032"):
        db.run(f"CREATE SINK f FROM t {files(tmp_path)} WITH (guarantee = 'exactly-once')")
    db.run(f"CREATE SINK f FROM t {files(tmp_path)}")


def test_the_checks_are_made_at_every_start(db: Database, tmp_path: Path) -> None:
    db.engine.stop()
    with pytest.raises(PenstockError, match="PSK-5031"):
        db.run("CREATE SINK c FROM t INTO CONSOLE (style = 'plain') WITH (guarantee = 'exactly-once')")
    db.run(f"CREATE SINK f FROM t {files(tmp_path)} WITH (guarantee = 'exactly-once')")
    db.engine.storage.settings = settings()
    db.engine.start()
    runner = next(iter(db.engine.sinks.values()))
    for _ in range(2):
        db.insert("s", (1,))
        with pytest.raises(PenstockError, match="PSK-7006"):
            db.engine.flush(timeout=10)
    assert runner.error is not None and runner.error.code == "PSK-5032" and runner.delivery is None
    sync(db)
    db.engine.flush(timeout=10)
    assert shown(db)["f"]["guarantee"] == "exactly-once" and numbers(tmp_path / "out") == [1, 1]


@pytest.mark.parametrize("value", ["0 seconds", "-1 seconds", "soon"])
def test_a_write_timeout_is_more_than_zero(db: Database, tmp_path: Path, value: str) -> None:
    with pytest.raises(PenstockError, match="PSK-1011"):
        db.run(f"CREATE SINK f FROM t {files(tmp_path)} WITH (write_timeout = '{value}')")
    with pytest.raises(PenstockError, match="PSK-1011"):
        db.run(f"CREATE SINK f FROM t {files(tmp_path)} WITH (guarantee = 'perhaps')")
    with pytest.raises(PenstockError, match=r"PSK-1010.*option of a query"):
        db.run(f"CREATE SINK f FROM t {files(tmp_path)} WITH (guarantee = 'auto', unbounded_state = true)")


def test_a_sink_that_is_made_again_does_not_overwrite_what_was_delivered(db: Database, tmp_path: Path) -> None:
    create = f"CREATE SINK f FROM t {files(tmp_path)}"
    db.run(f"{create}; DROP SINK f; {create}")
    db.insert("s", (1,))
    db.engine.flush(timeout=10)
    with pytest.raises(PenstockError, match="PSK-5015"):
        db.run(f"CREATE SINK g FROM t {files(tmp_path)}")
    db.run("DROP SINK f")
    before = db.state()
    with pytest.raises(PenstockError, match="PSK-5015"):
        db.run(create)
    assert db.state() == before and numbers(tmp_path / "out") == [1]


def test_two_sinks_on_one_folder_are_told_apart_when_they_start(db: Database, tmp_path: Path) -> None:
    db.engine.stop()
    db.run(f"CREATE SINK f FROM t {files(tmp_path)}; CREATE SINK g FROM t {files(tmp_path)}")
    db.insert("s", (1,))
    db.engine.start()
    with pytest.raises(PenstockError, match=r"PSK-7006: .*belongs to another sink"):
        db.engine.flush(timeout=10)
    assert numbers(tmp_path / "out") == [1]


def test_a_sink_keeps_its_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rows in (1, 2):
        with database(tmp_path / "data", monkeypatch) as db:
            if rows == 1:
                db.run(
                    f"CREATE SOURCE s (k BIGINT); CREATE STREAM t AS SELECT k FROM s; CREATE SINK f FROM t {files(tmp_path)}"
                )
            db.engine.start()
            db.insert("s", (rows,))
            db.engine.flush(timeout=10)
    assert numbers(tmp_path / "out") == [1, 2]


def test_the_settings_of_delivery() -> None:
    assert Settings().delivery.guarantee == "auto"
    with pytest.raises(ValueError, match="write_timeout_ms"):
        Settings(delivery={"write_timeout_ms": 0})  # type: ignore[arg-type]


def test_a_sink_whose_call_does_not_return_is_not_started_twice(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks_module, "_STOP_S", 0.01)
    monkeypatch.setattr(sinks_module, "_CANCEL_S", 0.01)
    gate, inside = threading.Event(), threading.Event()
    got: list[int] = []

    def slow(epoch: int, table: pa.Table) -> None:
        inside.set()
        gate.wait()
        got.extend(table["k"].to_pylist())

    register_callable("slow", slow)
    db.run("CREATE SINK p FROM t INTO PYTHON (callable = 'slow')")
    db.insert("s", (1,))
    assert inside.wait(10)
    with pytest.raises(PenstockError, match="PSK-5016: Sink p cannot start"):
        db.run("RESTART SINK p")
    db.engine.stop()
    db.engine.start()
    assert "PSK-5016" in str(next(iter(db.engine.refusals.values())))
    gate.set()
    eventually(lambda: all(r.stopped for r in db.engine.sinks.values()), "the end of the call")
    db.run("RESTART SINK p")
    db.engine.flush(timeout=10)
    assert got == [1] and db.engine.refusals == {}
