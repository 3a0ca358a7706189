"""A child process that ends in different ways, in the place of a JVM."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.spark.process import JvmProcess
from penstock.spark.scratch import Scratch

SOON_S = 20.0


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scratch]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = Scratch("test")
    yield made
    made.remove()


def run(scratch: Scratch, script: str) -> JvmProcess:
    return JvmProcess(["/bin/sh", "-c", script], scratch, dict(os.environ))


def end(process: JvmProcess) -> PenstockError:
    ended = threading.Event()
    process.when_ended(ended.set)
    assert ended.wait(SOON_S)
    error = process.end()
    assert error is not None
    assert error.code == "PSK-7005"
    assert error.hint is not None and str(process.log) in error.hint
    return error


@pytest.mark.parametrize(
    ("script", "detail"),
    [
        ("exit 3", "Spark's JVM has ended: exit code 3."),
        ("echo first; echo second; exit 1", "Spark's JVM has ended: exit code 1. Its log ends with: first second"),
        ("kill -TERM $$", "Spark's JVM has ended: it was ended by signal 15."),
        ("exit 143", "Spark's JVM has ended: it was ended by signal 15."),
        (
            "echo 'Terminating due to java.lang.OutOfMemoryError: Java heap space'; exit 3",
            "Spark's JVM has ended: java.lang.OutOfMemoryError: Java heap space.",
        ),
        ("exit 86", "Spark's JVM has ended: its Spark context was stopped."),
    ],
)
def test_the_error_says_how_it_ended(scratch: Scratch, script: str, detail: str) -> None:
    assert end(run(scratch, script)).detail == detail


def test_a_kill_is_noticed_at_once(scratch: Scratch) -> None:
    process = run(scratch, "exec sleep 600")
    assert process.end() is None
    begin = time.monotonic()
    os.kill(process.pid, signal.SIGKILL)
    assert "SIGKILL" in end(process).detail
    assert time.monotonic() - begin < 2


def test_what_it_said_at_its_start_is_not_given_as_the_reason(scratch: Scratch) -> None:
    process = run(scratch, "echo hello; read line; echo bye; exit 1")
    deadline = time.monotonic() + SOON_S
    while not process.log.stat().st_size:
        assert time.monotonic() < deadline
    process.started()
    process.stop(SOON_S)
    assert process.last_words() == "bye"


def test_it_may_end_by_itself_when_its_input_closes(scratch: Scratch) -> None:
    process = run(scratch, "cat > /dev/null; echo done")
    begin = time.monotonic()
    process.stop(SOON_S)
    assert time.monotonic() - begin < SOON_S / 2
    assert process.last_words() == "done"
    assert end(process).detail == "Spark's JVM has ended: this process has ended it."


def test_it_is_killed_when_it_does_not(scratch: Scratch) -> None:
    process = run(scratch, "trap '' TERM; exec sleep 600")
    begin = time.monotonic()
    process.stop(0.1)
    assert time.monotonic() - begin < 3
    assert process.end() is not None


def test_every_error_is_a_new_one(scratch: Scratch) -> None:
    process = run(scratch, "exit 1")
    assert end(process) is not end(process)
