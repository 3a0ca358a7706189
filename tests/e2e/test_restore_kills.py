"""A process that is killed at each step of a restore leaves the old database or the restored one."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from tests.e2e.command import COMMAND, ENVIRONMENT
from tests.unit.runtime.storing import Rows, in_contents, make, opened, part

from penstock.disk.crash import VARIABLE
from penstock.runtime.jobs.saving import capture_all, save

STEPS = {
    "checkpoint.linked": False,
    "checkpoint.written": False,
    "restore.prepared": False,
    "restore.decided": True,
    "restore.moved": True,
    "restore.moved:2": True,
    "restore.moved:4": True,
    "restore.replaced": True,
    "restore.finished": True,
}
"""The steps, and whether the database is restored after them."""


def contents(folder: Path) -> tuple[int, dict[str, Rows]]:
    with opened(folder) as storage:
        return storage.log.head, {o.name: in_contents(storage, o) for o in storage.catalog.objects()}


def restore(folder: Path, crash_at: str) -> int:
    command = [*COMMAND, "checkpoint", "restore", str(folder), "1"]
    return subprocess.run(command, env={**ENVIRONMENT, VARIABLE: crash_at}, capture_output=True, check=False).returncode


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    with opened(folder) as storage:
        t, gone = make(storage, "t"), make(storage, "gone")
        for k in range(20):
            storage.commit([part(t, (k, "x", 1)), part(gone, (k, "y", 1))])
        storage.save_contents()
        save(storage, capture_all(storage))
        storage.commit([part(t, (3, "x", -1), (99, "z", 1))])
        storage.catalog.remove(gone.id)
        storage.detach(gone.id)
        storage.commit([part(make(storage, "later"), (1, "new", 1))])
    return folder


@pytest.mark.parametrize("step", STEPS)
def test_killed_at(step: str, original: Path, tmp_path: Path) -> None:
    folder = tmp_path / "db"
    shutil.copytree(original, folder)
    last, before = contents(folder)
    assert restore(folder, step) == -signal.SIGKILL
    head, now = contents(folder)
    rows = {(k, "x"): 1 for k in range(20)}
    if STEPS[step]:
        assert now == {"t": rows, "gone": {(k, "y"): 1 for k in range(20)}} and head >= last
    else:
        assert (head, now) == (last, before)
        assert restore(folder, "") == 0 and contents(folder)[1]["t"] == rows
    # It goes on, and nothing is left lying around.
    with opened(folder) as storage:
        t = storage.catalog.get("t")
        assert t is not None and storage.commit([part(t, (50, "w", 1))]).lsn > last
    assert contents(folder)[1]["t"] == {**rows, (50, "w"): 1}
    assert not list(folder.glob("restore.*"))
