from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.unit.runtime.storing import make, opened
from tests.unit.runtime.test_checkpoints import epoch, saved
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.errors import PenstockError
from penstock.runtime.jobs.remote import identity, remote
from penstock.runtime.jobs.saving import capture_all, save
from penstock.runtime.storage.checkpoints import CheckpointStore, Manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A database with two checkpoints."""
    with opened(tmp_path) as storage:
        make(storage, "t")
        for id in (1, 2):
            epoch(storage.layout.job(7), id, id)
            saved(storage.checkpoints, storage.layout.job(7), "jobs/7", id)
    return tmp_path


def listed(folder: Path, how: str) -> tuple[int, list[tuple[int, str]]]:
    answer = CliRunner().invoke(app, ["checkpoint", how, str(folder), "--format", "json"])
    return answer.exit_code, [(r["id"], r["status"]) for r in json.loads(answer.stdout)]


def test_checkpoints_are_listed_verified_and_pruned(folder: Path) -> None:
    assert listed(folder, "list") == (0, [(1, "complete"), (2, "complete")])
    assert listed(folder, "verify") == (0, [(1, "verified"), (2, "verified")])
    (folder / "checkpoints" / "1" / "body").write_bytes(b"")
    assert listed(folder, "list")[0] == 0
    code, rows = listed(folder, "verify")
    assert code == 1 and "PSK-6001" in rows[0][1] and rows[1][1] == "verified"
    answer = CliRunner().invoke(app, ["checkpoint", "prune", str(folder)])
    assert (answer.exit_code, answer.stdout) == (0, "removed 1\n")
    assert listed(folder, "verify") == (0, [(2, "verified")])


def test_a_folder_without_a_database_is_refused(tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["checkpoint", "list", str(tmp_path)])
    assert isinstance(answer.exception, PenstockError) and answer.exception.code == "PSK-6008"


def test_checkpoints_that_cannot_be_read_are_not_none(folder: Path, tmp_path: Path) -> None:
    shutil.rmtree(folder / "checkpoints")
    (folder / "checkpoints").write_text("")
    for how in ("list", "verify"):
        answer = CliRunner().invoke(app, ["checkpoint", how, str(folder)])
        assert isinstance(answer.exception, PenstockError) and answer.exception.code == "PSK-6001"
    for line in (["list"], ["restore", "1"], ["prune"]):
        answer = CliRunner().invoke(app, ["checkpoint", line[0], "x" * 300, *line[1:]])
        assert isinstance(answer.exception, PenstockError) and answer.exception.code == "PSK-0009"


def test_uploaded_checkpoints_are_listed_verified_and_imported(tmp_path: Path) -> None:
    place = tmp_path / "there"
    with opened(tmp_path / "db") as storage:
        make(storage, "t")
        for _ in range(2):
            id = save(storage, capture_all(storage)).id
            remote(place.as_uri()).upload(storage.checkpoints, id, identity(storage.checkpoints.folder))
    run = CliRunner().invoke

    def shown(how: str) -> tuple[int, list[tuple[int, str]]]:
        answer = run(app, ["checkpoint", how, place.as_uri(), "--format", "json"])
        return answer.exit_code, [(r["id"], r["status"]) for r in json.loads(answer.stdout)]

    assert shown("list") == (0, [(1, "complete"), (2, "complete")])
    assert shown("verify") == (0, [(1, "verified"), (2, "verified")])
    answer = run(app, ["checkpoint", "import", place.as_uri(), str(tmp_path / "copy"), "--id", "1"])
    assert answer.exit_code == 0 and answer.stdout.startswith("imported commit")
    next(f for f in place.rglob("body.*")).write_bytes(b"")
    code, rows = shown("verify")
    assert code == 1 and "PSK-6009" in rows[0][1] + rows[1][1]


def test_savepoints_are_listed_and_verified(tmp_path: Path) -> None:
    run, out = CliRunner().invoke, tmp_path / "out"
    with opened(tmp_path / "db") as storage:
        make(storage, "t")
        id = save(storage, capture_all(storage)).id
    assert run(app, ["checkpoint", "export", str(tmp_path / "db"), str(id), str(out)]).exit_code == 0
    assert listed(out, "verify") == (0, [(id, "verified")])
    (out / "body").write_bytes(b"")
    code, rows = listed(out, "verify")
    assert code == 1 and "PSK-6009" in rows[0][1]
    # A place that has nothing is not a place in which all is well.
    answer = run(app, ["checkpoint", "verify", (tmp_path / "nowhere").as_uri()])
    assert isinstance(answer.exception, PenstockError) and answer.exception.code == "PSK-6008"


def test_a_checkpoint_that_is_pruned_while_it_is_read_is_not_damaged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = CheckpointStore.verify

    def late(store: CheckpointStore, id: int) -> Manifest:
        store.prune(1)
        return verify(store, id)

    monkeypatch.setattr(CheckpointStore, "verify", late)
    assert listed(folder, "verify") == (0, [(2, "verified")])
