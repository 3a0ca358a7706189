"""Temporary folders: private, removed with their process, and never someone else's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from penstock.spark.scratch import Scratch, sweep

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}

MAKES_ONE = """
import subprocess, sys
from penstock.spark.scratch import Scratch
made = Scratch("test")
(made.path / "deep" / "er").mkdir(parents=True)
(made.path / "deep" / "er" / "file").write_text("x" * 1000)
child = subprocess.Popen(["sleep", "600"], pass_fds=(made.lock,)) if sys.argv[1] == "child" else None
print(made.path, child.pid if child else 0, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def other_process(temporary: Path, how: str = "alone") -> tuple[subprocess.Popen[str], Path, int]:
    process = subprocess.Popen(
        [sys.executable, "-c", MAKES_ONE, how],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**ENVIRONMENT, "TMPDIR": str(temporary)},
    )  # fmt: skip
    assert process.stdout is not None
    path, child = process.stdout.readline().split()
    return process, Path(path), int(child)


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


def test_private_and_removed() -> None:
    made = Scratch("test")
    assert made.path.stat().st_mode & 0o777 == 0o700
    (made.path / "folder").mkdir()
    (made.path / "folder" / "file").write_text("x")
    made.remove()
    made.remove()
    assert not made.path.exists()


def test_cleared_but_for_one_file() -> None:
    made = Scratch("test")
    for name in ("log", "other"):
        (made.path / name).write_text("x")
    made.clear(keep={"log"})
    assert [p.name for p in made.path.iterdir() if not p.name.startswith(".")] == ["log"]
    made.remove()
    assert not made.path.exists()


def test_swept_when_its_process_was_killed_and_not_before(temporary: Path) -> None:
    process, path, _ = other_process(temporary)
    try:
        sweep()
        assert (path / "deep" / "er" / "file").exists()
    finally:
        killed(process)
    sweep()
    assert not path.exists()


def test_not_swept_while_a_child_of_its_process_lives(temporary: Path) -> None:
    process, path, child = other_process(temporary, "child")
    killed(process)
    sweep()
    assert path.exists()
    os.kill(child, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while path.exists() and time.monotonic() < deadline:
        # It is no child of ours, so its end cannot be waited for.
        sweep()
    assert not path.exists()


def test_what_is_not_ours_is_left(temporary: Path) -> None:
    database = temporary / "penstock-orders"
    database.mkdir()
    (database / "catalog.json").write_text("{}")
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".penstock-scratch").touch()
    (temporary / "penstock-link").symlink_to(elsewhere)
    (temporary / "penstock-file").write_text("x")
    sweep()
    assert sorted(p.name for p in temporary.iterdir()) == [
        "elsewhere",
        "penstock-file",
        "penstock-link",
        "penstock-orders",
    ]
    assert (database / "catalog.json").exists() and (elsewhere / ".penstock-scratch").exists()


def test_a_link_inside_is_removed_and_not_followed(temporary: Path) -> None:
    kept = temporary / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    made = Scratch("test")
    (made.path / "link").symlink_to(kept)
    made.remove()
    assert (kept / "file").exists() and not made.path.exists()
