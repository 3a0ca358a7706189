"""Databases without a JVM that are taken back to a checkpoint."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.engines import database
from tests.unit.runtime.storing import in_log

from penstock.connect import register_callable
from penstock.disk import whole
from penstock.errors import PenstockError
from penstock.runtime.lifecycle import State
from penstock.runtime.statements import restore as statement
from penstock.runtime.statements.subscribe import subscribe
from penstock.runtime.storage.interrupts import uninterrupted
from penstock.serve.options import SubscribeOptions


def refused(code: str, call: object) -> PenstockError:
    with pytest.raises(PenstockError) as error:
        call()  # type: ignore[operator]
    assert error.value.code == code
    return error.value


def delivered(folder: Path) -> list[int]:
    files = sorted(folder.glob("epoch-*.json"))
    return [json.loads(line)["k"] for f in files for line in f.read_text().splitlines()]


def test_everything_is_as_it_was_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = tmp_path / "files"
    with database(tmp_path / "db", monkeypatch) as db:
        db.run("CREATE TABLE t (k BIGINT NOT NULL, v VARCHAR, PRIMARY KEY (k))")
        db.run("CREATE TABLE u (k BIGINT NOT NULL, v VARCHAR, PRIMARY KEY (k))")
        db.run("CREATE SOURCE s (k BIGINT)")
        db.run("CREATE MATERIALIZED VIEW w AS SELECT k, v FROM t")
        db.run("CREATE STREAM c AS SELECT k FROM s")
        db.run(f"CREATE SINK f FROM c INTO FILES (path = '{files}', format = 'json')")
        db.engine.start()
        db.insert("t", (1, "a"), (2, "b"))
        db.insert("u", (9, "z"))
        db.insert("s", (1,), (2,))
        db.engine.flush(10)
        sent = subscribe(db.engine, "w", SubscribeOptions(snapshot=True))
        assert sent.next(10).kind == "snapshot"  # type: ignore[union-attr]
        (saved,) = db.run("CHECKPOINT").column("checkpoint").to_pylist()
        head, before = db.engine.log.head, {n: db.rows(n) for n in ("t", "u", "w")}
        db.insert("t", (3, "c"))
        db.insert("s", (3,))
        db.run("DELETE FROM t WHERE k = 1")
        db.run("DROP TABLE u")
        db.run("CREATE TABLE later (k BIGINT)")
        db.engine.flush(10)
        assert delivered(files) == [1, 2, 3]
        last, epoch = db.engine.log.head, db.engine.log.epoch(db.engine.catalog.get("c").id)  # type: ignore[union-attr]
        later = db.engine.catalog.get("later").id  # type: ignore[union-attr]

        (done,) = db.run(f"RESTORE FROM CHECKPOINT {saved}").to_pylist()
        assert (done["checkpoint"], done["lsn"]) == (saved, head) and done["backup"] > saved
        assert {n: db.rows(n) for n in ("t", "u", "w")} == before
        assert db.engine.catalog.get("later") is None
        db.engine.flush(10)
        assert delivered(files) == [1, 2]
        while (change := sent.next(10)) is not None and change.kind != "resync":
            pass
        assert change is not None and "checkpoint" in str(change.reason) and change.table.num_rows == 2
        # No number is used twice.
        assert change.lsn > last and db.engine.log.head > last
        db.insert("s", (4,))
        db.insert("t", (4, "d"))
        db.run("CREATE TABLE later (k BIGINT)")
        assert db.engine.catalog.get("later").id > later  # type: ignore[union-attr]
        db.engine.flush(10)
        assert delivered(files) == [1, 2, 4]
        assert db.engine.log.epoch(db.engine.catalog.get("c").id) > epoch  # type: ignore[union-attr]
        assert sorted(db.rows("w")) == [(1, "a"), (2, "b"), (4, "d")]
        # There and back.
        (done,) = db.run(f"RESTORE FROM CHECKPOINT {done['backup']}").to_pylist()
        assert sorted(db.rows("t")) == [(2, "b"), (3, "c")] == sorted(db.rows("w"))
        assert db.engine.catalog.get("u") is None
        db.engine.flush(10)
        assert delivered(files) == [1, 2, 3]
    with database(tmp_path / "db", monkeypatch) as db:
        db.engine.start()
        assert sorted(db.rows("t")) == [(2, "b"), (3, "c")] == sorted(db.rows("w"))
        s = db.engine.catalog.get("s")
        assert s is not None and sorted(in_log(db.engine.storage, s)) == [(1,), (2,), (3,)]


def test_a_restore_that_cannot_be_carried_out_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with database(tmp_path, monkeypatch) as db:
        db.run("CREATE SOURCE s (k BIGINT)")
        db.run("CREATE STREAM c AS SELECT k FROM s")
        db.run("CREATE SINK shown FROM c INTO CONSOLE")
        db.engine.start()
        (saved,) = db.run("CHECKPOINT").column("checkpoint").to_pylist()
        db.insert("s", (1,))
        db.engine.flush(10)
        refused("PSK-6005", lambda: db.run("RESTORE FROM CHECKPOINT 99"))
        assert "shown" in refused("PSK-5022", lambda: db.run(f"RESTORE FROM CHECKPOINT {saved}")).detail
        body = tmp_path / "checkpoints" / str(saved) / "body"
        kept = body.read_bytes()
        body.write_bytes(b"")
        refused("PSK-6001", lambda: db.run(f"RESTORE FROM CHECKPOINT {saved} WITH (delivered = 'keep')"))
        body.write_bytes(kept)
        s = db.engine.catalog.get("s")
        assert s is not None and db.engine.running and sorted(in_log(db.engine.storage, s)) == [(1,)]
        db.run(f"RESTORE FROM CHECKPOINT {saved} WITH (delivered = 'keep', backup = 'false')")
        assert db.engine.running and not in_log(db.engine.storage, s)
        db.insert("s", (2,))
        db.engine.flush(10)


@pytest.mark.parametrize("at", [1, 2, 5, 9])
@pytest.mark.parametrize("again", ["START PIPELINE", None])
def test_a_disk_that_fails_after_the_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, again: str | None
) -> None:
    """The files cannot be opened until the exchange has ended. Nothing may be written meanwhile: the catalogue in memory is not that on disk."""
    files, folder = tmp_path / "files", tmp_path / "db"
    with database(folder, monkeypatch) as db:
        db.run("CREATE TABLE t (k BIGINT NOT NULL, PRIMARY KEY (k)); CREATE SOURCE s (k BIGINT)")
        db.run("CREATE MATERIALIZED VIEW w AS SELECT k FROM t; CREATE STREAM c AS SELECT k FROM s")
        db.run(f"CREATE SINK f FROM c INTO FILES (path = '{files}', format = 'json')")
        db.engine.start()
        for k in (1, 2):
            db.insert("t", (k,))
            db.insert("s", (k,))
            db.engine.flush(10)
            if k == 1:
                (saved,) = db.run("CHECKPOINT").column("checkpoint").to_pylist()
                sent = subscribe(db.engine, "w", SubscribeOptions(snapshot=True))
                assert sent.next(10).kind == "snapshot"  # type: ignore[union-attr]
        replace, calls = os.replace, itertools.count(1)

        def full(path: Path, target: Path) -> None:
            between = {Path(path).parent, Path(target).parent}
            moves = folder / "restore.old" in between or between == {folder / "restore.new", folder}
            if moves and next(calls) >= at:
                raise OSError(errno.ENOSPC, "No space left on device")
            replace(path, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", full)
            assert "was decided" in str(refused("PSK-7004", lambda: db.run(f"RESTORE FROM CHECKPOINT {saved}")).hint)
            for sql in ("CREATE TABLE u (k BIGINT)", "INSERT INTO t VALUES (9)", "CHECKPOINT", "SHOW TABLES"):
                assert "db.start()" in str(refused("PSK-7004", lambda sql=sql: db.run(sql)).hint)
            refused("PSK-7004", db.engine.start)
        if again is not None:
            db.run(again)
            assert db.rows("t") == {(1,): 1} == db.rows("w")
            while (change := sent.next(10)) is not None and change.kind != "resync":
                pass
            assert change is not None and change.table.num_rows == 1
    with database(folder, monkeypatch) as db:
        db.engine.start()
        db.insert("s", (3,))
        db.engine.flush(10)
        assert db.rows("t") == {(1,): 1} == db.rows("w") and delivered(files) == [1, 3]


def test_a_decision_that_may_not_be_on_disk_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "db"
    with database(folder, monkeypatch) as db:
        db.run("CREATE TABLE t (k BIGINT NOT NULL, PRIMARY KEY (k))")
        (saved,) = db.run("CHECKPOINT").column("checkpoint").to_pylist()
        db.insert("t", (1,))
        synced = whole.sync_folder

        def fails(path: Path) -> None:
            if (folder / "restore.json").exists():
                raise OSError(errno.EIO, "Input/output error")
            synced(path)

        with monkeypatch.context() as patch:
            patch.setattr(whole, "sync_folder", fails)
            refused("PSK-7004", lambda: db.run(f"RESTORE FROM CHECKPOINT {saved}"))
        assert db.rows("t") == {(1,): 1}
        db.run(f"RESTORE FROM CHECKPOINT {saved}")
        assert not db.rows("t")


def test_a_sink_that_cannot_take_back_and_has_not_delivered_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[int] = []
    register_callable("collects", lambda epoch, table: got.extend(table["k"].to_pylist()))
    with database(tmp_path, monkeypatch) as db:
        db.run("CREATE SOURCE s (k BIGINT)")
        db.run("CREATE SINK p FROM s INTO PYTHON (callable = 'collects')")
        db.engine.start()
        db.insert("s", (1,))
        db.engine.flush(10)
        (id,) = db.run("CHECKPOINT").column(0).to_pylist()
        db.engine.stop()
        db.insert("s", (2,))
        # Nothing of the second row has left the database.
        db.run(f"RESTORE FROM CHECKPOINT {id}")
        db.engine.start()
        db.insert("s", (3,))
        db.engine.flush(10)
        assert got == [1, 3] and db.engine.sinks[db.engine.catalog.get("p").id].error is None  # type: ignore[union-attr]


def test_what_is_delivered_while_a_restore_begins_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[int] = []
    register_callable("collects", lambda epoch, table: got.extend(table["k"].to_pylist()))
    with database(tmp_path, monkeypatch) as db:
        db.run("CREATE SOURCE s (k BIGINT)")
        db.run("CREATE SINK p FROM s INTO PYTHON (callable = 'collects')")
        db.engine.start()
        (id,) = db.run("CHECKPOINT").column(0).to_pylist()
        plan = statement.planned

        def planned(*arguments: Any, **more: Any) -> Any:
            found = plan(*arguments, **more)
            db.insert("s", (len(got),))
            db.engine.flush(10)
            return found

        monkeypatch.setattr(statement, "planned", planned)
        refused("PSK-5022", lambda: db.run(f"RESTORE FROM CHECKPOINT {id}"))
        db.insert("s", (7,))
        db.engine.flush(10)
        assert got == [0, 7]
        db.run(f"RESTORE FROM CHECKPOINT {id} WITH (delivered = 'keep')")
        db.insert("s", (8,))
        db.engine.flush(10)
        assert got == [0, 7, 2, 8]


@pytest.mark.parametrize("where", ["stop", "freeze", "_recover_all", "start"])
def test_ctrl_c_leaves_a_database_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Pressed while queries were stopped, it once left them stopped, and nothing trimmed the log or made checkpoints any more."""
    with database(tmp_path / "db", monkeypatch) as db:
        db.run("CREATE TABLE t (k BIGINT NOT NULL, v VARCHAR, PRIMARY KEY (k))")
        db.run("CREATE MATERIALIZED VIEW w AS SELECT k, v FROM t")
        db.engine.start()
        db.insert("t", (1, "a"))
        (saved,) = db.run("CHECKPOINT").column("checkpoint").to_pylist()
        db.insert("t", (2, "b"))
        of: object = db.engine.storage if where == "freeze" else db.engine
        real = getattr(of, where)

        def pressed(*given: object) -> None:
            with uninterrupted():
                signal.raise_signal(signal.SIGINT)
                real(*given)

        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with monkeypatch.context() as patch:
                patch.setattr(of, where, pressed)
                with pytest.raises(KeyboardInterrupt):
                    db.run(f"RESTORE FROM CHECKPOINT {saved}")
        finally:
            signal.signal(signal.SIGINT, before)
        kept = [1, 2] if where in ("stop", "freeze") else [1]
        assert [k for k, _ in sorted(db.rows("t"))] == kept == [k for k, _ in sorted(db.rows("w"))]
        assert db.engine.lifecycle.state is State.RUNNING and db.engine.exchange is None
        assert db.engine.ticker._thread.is_alive()
        db.insert("t", (3, "c"))
        assert [k for k, _ in sorted(db.rows("w"))] == [*kept, 3]
        db.run(f"RESTORE FROM CHECKPOINT {saved}")
        assert [k for k, _ in sorted(db.rows("w"))] == [1]
