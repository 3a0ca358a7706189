"""Databases without a JVM that are taken back to a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.runtime.engines import database
from tests.unit.runtime.storing import in_log

from penstock.errors import PenstockError
from penstock.runtime.statements.subscribe import subscribe
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
