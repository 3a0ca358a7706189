"""Databases that do not open any more, taken back to a checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.runtime.engines import database
from tests.unit.runtime.storing import make, opened, part
from tests.unit.runtime.test_restore import delivered
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.errors import PenstockError
from penstock.runtime.closed import restore_closed


def cut(path: Path) -> None:
    """Not in place: the checkpoint has the same file."""
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:30])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "no catalogue": lambda f: (f / "catalog.json").unlink(),
    "an empty catalogue": lambda f: (f / "catalog.json").write_bytes(b""),
    "no log": lambda f: shutil.rmtree(f / "log"),
    "no segments": lambda f: (f / "log" / "00000001.seg").unlink(),
    "a segment that is cut": lambda f: cut(f / "log" / "00000001.seg"),
    "neither": lambda f: ((f / "catalog.json").unlink(), shutil.rmtree(f / "log")),
    "a folder of an unknown format": lambda f: (f / "format.json").write_bytes(b"{"),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_a_database_that_does_not_open_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    folder, files = tmp_path / "db", tmp_path / "files"
    with database(folder, monkeypatch) as db:
        db.run("CREATE TABLE t (k BIGINT NOT NULL, v VARCHAR, PRIMARY KEY (k)); CREATE SOURCE s (k BIGINT)")
        db.run("CREATE MATERIALIZED VIEW w AS SELECT k, v FROM t; CREATE STREAM c AS SELECT k FROM s")
        db.run(f"CREATE SINK f FROM c INTO FILES (path = '{files}', format = 'json')")
        db.engine.start()
        db.insert("t", (1, "a"))
        db.insert("s", (1,))
        db.engine.flush(10)
        (saved,) = db.run("CHECKPOINT").column("checkpoint").to_pylist()
        db.insert("t", (2, "b"))
        db.insert("s", (2,))
        db.engine.flush(10)
        head = db.engine.log.head
        id = max(o.id for o in db.engine.catalog.objects())
    DAMAGES[how](folder)
    with pytest.raises(PenstockError, match="PSK-6001") as error, opened(folder):
        raise AssertionError
    if how != "a folder of an unknown format":
        assert "penstock checkpoint restore" in str(error.value.hint)
    with pytest.raises(PenstockError, match="PSK-6005"):
        restore_closed(folder, 99, backup=True, keep_delivered=False)
    listed = CliRunner().invoke(app, ["checkpoint", "verify", str(folder)])
    assert listed.exit_code == 0 and "verified" in listed.stdout
    answer = CliRunner().invoke(app, ["checkpoint", "restore", str(folder), str(saved)])
    assert answer.exit_code == 0 and f"the damaged files are in {folder}/damaged-1" in answer.stdout
    assert (folder / "damaged-1" / "views").is_dir()
    with database(folder, monkeypatch) as db:
        db.engine.start()
        assert db.rows("t") == {(1, "a"): 1} == db.rows("w")
        db.engine.flush(10)
        assert delivered(files) == [1]
        # No number is used twice.
        assert db.engine.log.head >= head
        db.run("CREATE TABLE later (k BIGINT)")
        assert db.engine.catalog.get("later").id > id  # type: ignore[union-attr]
        db.insert("t", (3, "c"))
        db.insert("s", (3,))
        db.engine.flush(10)
        assert delivered(files) == [1, 3] and sorted(db.rows("w")) == [(1, "a"), (3, "c")]


def test_a_log_that_is_gone_is_not_a_new_one(tmp_path: Path) -> None:
    """Without the check a table is served as empty: the log has all of its changes, which are none."""
    with opened(tmp_path) as storage:
        storage.commit([part(make(storage, "t"), (1, "x", 1))])
    shutil.rmtree(tmp_path / "log")
    for _ in range(2):
        with pytest.raises(PenstockError, match=r"PSK-6001.*every commit is lost"), opened(tmp_path):
            raise AssertionError
