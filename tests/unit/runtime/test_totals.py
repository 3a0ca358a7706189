"""Counts that survive a restart and a crash, and the figures of a database as a whole."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.runtime.engines import Database, database
from tests.unit.runtime.kernels import HostKernel

from penstock.catalog.objects import Kind
from penstock.errors import fail
from penstock.runtime.retention import Floor
from penstock.runtime.statements.inspect import ObjectStatus, status
from penstock.runtime.statements.totals import database_status
from penstock.runtime.storage.totals import Totals
from penstock.spark.operators import StateFigures

SCHEMA = """
CREATE SOURCE s (k BIGINT, v STRING);
CREATE TABLE t (k BIGINT PRIMARY KEY, v STRING);
CREATE MATERIALIZED VIEW m AS SELECT k, v FROM t;
CREATE STREAM o AS SELECT k, v FROM s;
"""


def of(db: Database, name: str) -> ObjectStatus:
    (found,) = [s for s in status(db.engine) if s.name == name]
    return found


def rows(db: Database) -> dict[str, tuple[int, int]]:
    return {s.name: (s.rows, s.rows_in) for s in status(db.engine)}


def begun(db: Database) -> None:
    db.run(SCHEMA)
    db.engine.start()
    db.insert("s", (1, "a"), (2, "b"), (3, "c"))
    db.insert("t", (1, "a"), (2, "b"))
    db.rows("m")  # In an epoch of its own: of one epoch, only the net change counts.
    db.insert("t", (1, "x"))
    db.rows("m")


WANT = {"s": (3, 0), "t": (4, 0), "m": (4, 4), "o": (3, 3)}


@pytest.mark.parametrize("trimmed", [False, True])
@pytest.mark.parametrize("end", ["close", "kill"])
def test_counts_survive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, trimmed: bool) -> None:
    folder, after = tmp_path / "a", tmp_path / "b"
    with database(folder, monkeypatch) as db:
        begun(db)
        assert rows(db) == WANT
        if trimmed:
            retention = db.engine.ticker.retention
            monkeypatch.setattr(retention, "look", lambda info: None)
            retention.floors = {
                o.id: Floor(db.engine.storage.save(o), "") for o in db.engine.catalog.objects(Kind.VIEW)
            }
            db.engine.ticker.trim()
            view = db.engine.catalog.get("m")
            assert view is not None and db.engine.log.amount(view.id)[1] == 0
            assert rows(db) == WANT
        db.insert("s", (4, "d"))
        db.rows("m")
        if end == "kill":
            shutil.copytree(folder, after)
    more = WANT | {"s": (4, 0), "o": (4, 4)}
    with database(after if end == "kill" else folder, monkeypatch) as db:
        assert {n: r for n, (r, _) in rows(db).items()} == {n: r for n, (r, _) in more.items()}
        db.engine.start()
        db.insert("s", (5, "e"))
        db.rows("m")
        assert rows(db) == more | {"s": (5, 0), "o": (5, 5)}
        if end == "close":
            assert database_status(db.engine).opened == 2


def test_a_file_that_cannot_be_read_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with database(tmp_path, monkeypatch) as db:
        begun(db)
    for damage in (b"", b"{", b'{"format": 1, "crc": 0, "content": {}}', b'{"format": 99, "crc": 0, "content": 1}'):
        (tmp_path / "totals.json").write_bytes(damage)
        caplog.clear()
        with caplog.at_level(logging.WARNING), database(tmp_path, monkeypatch) as db:
            assert "totals.json cannot be read" in caplog.text
            assert rows(db)["s"] == (3, 0)  # What the log has.


def test_a_disk_that_refuses_the_counts_holds_up_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with database(tmp_path, monkeypatch) as db:
        begun(db)
        with monkeypatch.context() as full:
            full.setattr(Totals, "save", lambda self: (_ for _ in ()).throw(fail("PSK-7004", "full")))
            db.engine.ticker.trim()
            db.insert("s", (4, "d"))
        assert rows(db)["s"] == (4, 0)


def test_nothing_is_written_while_nothing_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with database(tmp_path, monkeypatch) as db:
        begun(db)
        db.engine.ticker.trim()
        file = tmp_path / "totals.json"
        before = file.stat().st_mtime_ns
        info = db.engine.catalog.get("s")
        assert info is not None
        db.engine.ticker._heartbeat(info)
        db.engine.ticker.trim()
        assert file.stat().st_mtime_ns == before


def test_what_is_dropped_is_not_counted_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with database(tmp_path, monkeypatch) as db:
        begun(db)
        db.run("DROP TABLE t CASCADE; CREATE TABLE t (k BIGINT PRIMARY KEY, v STRING)")
        assert rows(db) == {"s": (3, 0), "o": (3, 3), "t": (0, 0)}
        known = {o.id for o in db.engine.catalog.objects()}
        assert set(db.engine.storage.totals._counts) <= known


def test_a_query_that_rests_has_a_backlog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with database(tmp_path, monkeypatch) as db:
        begun(db)
        for kernel in db.world.running:
            kernel.resting = True
        db.insert("s", (4, "d"), (5, "e"))
        found = of(db, "o")
        assert found.pending_rows == 2 and found.pending_bytes > 0 and found.rows_in == 3
        assert of(db, "s").pending_rows == 2
        whole = database_status(db.engine)
        assert (whole.pending_rows, whole.rows_in, whole.rows_out) == (2, 9, 7)
        for kernel in db.world.running:
            kernel.resting = False
        db.rows("m")
        assert (of(db, "o").pending_rows, of(db, "o").pending_bytes) == (0, 0)
        shown = {r["name"]: r for r in db.run("SHOW QUERIES").to_pylist()}
        assert (shown["o"]["rows_in"], shown["o"]["rows_out"], shown["o"]["pending_rows"]) == (5, 5, 0)


def test_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with database(tmp_path, monkeypatch) as db:
        begun(db)
        clock: list[float] = [100.0]
        db.engine.ticker.stop()
        monkeypatch.setattr("penstock.runtime.storage.totals.time.monotonic", lambda: clock[0])
        totals = db.engine.storage.totals
        totals._samples.clear()
        assert of(db, "s").rows_per_s == 0
        for _ in range(15):
            db.engine.ticker._count()
            clock[0] += 1
            db.insert("s", (9, "z"), (9, "z"))
        assert of(db, "s").rows_per_s == pytest.approx(2)
        assert database_status(db.engine).rows_in_per_s == pytest.approx(2)


def test_figures_without_a_jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What only the JVM knows is as it was when it was last asked for."""
    gone = fail("PSK-7005", "The JVM exited.")

    def dead(*_: Any) -> Any:
        raise gone

    with database(tmp_path, monkeypatch) as db:
        begun(db)
        kernels = {type(k) for k in db.world.running}
        for kernel in kernels:
            monkeypatch.setattr(kernel, "late_rows", lambda self: 7, raising=False)
        # Epochs of a shared job tell the late rows of its members.
        for job in db.engine.jobs:
            job.figures.late |= dict.fromkeys(job.objects, 7)
        before = {s.name: (s.rows, s.rows_in, s.late_rows, s.operators) for s in status(db.engine)}
        assert before["o"][2] == 7
        db.engine._died(gone)
        for kernel in kernels:
            for name in ("late_rows", "state", "kept"):
                monkeypatch.setattr(kernel, name, dead, raising=False)
            monkeypatch.setattr(kernel, "position", property(dead))
        assert {s.name: (s.rows, s.rows_in, s.late_rows, s.operators) for s in status(db.engine)} == before
        assert database_status(db.engine).state == "Faulted"


def test_figures_while_a_query_leaves_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job evicts a member before anybody else hears of it."""
    with database(tmp_path, monkeypatch) as db:
        begun(db)
        info = db.engine.catalog.get("m")
        assert info is not None
        planned = SimpleNamespace(compiled=SimpleNamespace(operators=[SimpleNamespace(name="Aggregate")]))
        monkeypatch.setattr(db.engine.jobs, "plan", lambda info: planned)
        monkeypatch.setattr(HostKernel, "kept", lambda self: {info.id: [StateFigures(3, 30)]})
        known = of(db, "m")
        assert [(o.name, o.state_rows, o.state_bytes) for o in known.operators] == [("Aggregate", 3, 30)]
        monkeypatch.setattr(HostKernel, "kept", lambda self: {})
        assert of(db, "m").operators == known.operators
