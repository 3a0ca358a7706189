"""A database that is killed in the middle of its work: nothing is lost and nothing doubled, in any view, follower or sink. `make test-crash` kills it many more times."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.crash.harness import ROOT, Harness
from tests.effort import times
from tests.postgres import PostgresServer


def test_every_life_finds_what_an_uninterrupted_run_would_have(tmp_path: Path, postgres: PostgresServer) -> None:
    said: list[str] = []
    harness = Harness(tmp_path, postgres, seed=16, say=said.append, databases=4)
    harness.run(4 * times(3), steps=("epoch.recorded", "jvm.committed", "checkpoint.written"))
    assert min(harness.made) > 0, said


def test_every_life_without_a_jvm_finds_it_too() -> None:
    # In a process of its own: its lives are forks, which must not have threads of others.
    command = [sys.executable, "-m", "tests.crash.storage", "--kills", str(times(12)), "--seed", "17"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
