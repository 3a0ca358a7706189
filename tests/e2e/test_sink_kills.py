"""Sinks whose process is killed at each named step: no row is lost, and none is delivered twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.e2e.delivering import KEYS, ROUND, Task, started
from tests.effort import EFFORT
from tests.postgres import PASSWORD, PostgresServer

from penstock.disk.crash import VARIABLE

ROOT = Path(__file__).parents[2]
STEPS = (
    "sink.begun",
    "sink.written",
    "sink.prepared",
    "sink.decided",
    "files.renamed",
    "sink.committed",
    "sink.announced",
)


def run(task: Task, crash_at: str = "", kill_after_s: float = 300) -> bool:
    """Runs the process; True if it was killed, by itself or after some time."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), VARIABLE: crash_at}
    command = [sys.executable, "-m", "tests.e2e.delivering", started(task)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            out, err = process.communicate(timeout=kill_after_s)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), err
    killed = process.returncode != 0
    assert killed or out.endswith("done\n")
    return killed


def lines(files: Iterable[Path]) -> list[Any]:
    return [json.loads(line) for f in files for line in f.read_text().splitlines()]


def test_every_row_is_delivered_once(tmp_path: Path, postgres: PostgresServer) -> None:
    postgres.execute("CREATE TABLE kill_append (n bigint)", "CREATE TABLE kill_upsert (k bigint PRIMARY KEY, n bigint)")
    chance = random.Random(12)
    commits = kills = 0

    def task() -> Task:
        return Task(str(tmp_path), commits, postgres.url, PASSWORD, "kill_append", "kill_upsert")

    for turn in range(EFFORT):
        for step in STEPS:
            commits += 2 * ROUND
            # All four sinks pass each step, and two go through files.
            kills += run(task(), f"{step}:{chance.randrange(1, 7 if turn else 4)}")
        # At any moment; this one may come too early or too late.
        commits += 6 * ROUND
        run(task(), kill_after_s=chance.uniform(0.7, 1.5))
    commits += ROUND
    assert not run(task())
    assert kills >= EFFORT * (len(STEPS) - 1)
    numbers = list(range(commits))

    assert [row["n"] for row in lines(sorted((tmp_path / "files").glob("epoch-*.json")))] == numbers
    assert sorted(n for ns in lines((tmp_path / "ledger").iterdir()) for n in ns) == numbers
    assert [n for (n,) in postgres.execute("SELECT n FROM kill_append ORDER BY n")] == numbers
    counts = {k: len(range(k, commits, KEYS)) for k in range(KEYS)}
    assert dict(postgres.execute("SELECT k, n FROM kill_upsert")) == counts
    assert not list((tmp_path / "files").glob(".*pending")) and not list((tmp_path / "ledger").glob("*.waits"))
