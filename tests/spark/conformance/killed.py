"""One case with a real crash at each `restart`: `python -m tests.spark.conformance.killed CASE FOLDER` runs it up to the next restart, where it kills itself, or to its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.spark.conformance.cases import load
from tests.spark.conformance.run import Run
from tests.spark.following import Follower

import penstock

ROOT = Path(__file__).parents[3]


class KilledRun(Run):
    """A run that is ended by SIGKILL. What its subscribers had read is in a file, as consumers have it in theirs."""

    def __init__(self, case_id: str, folder: Path) -> None:
        (case,) = (c for c in load() if c.id == case_id)
        self._noted = folder / "noted.json"
        super().__init__(case, lambda: penstock.open(folder / "data", master="local[2]", config={"spark.heap": "1g"}))

    def run(self) -> None:
        first = 0
        if self._noted.exists():
            noted = json.loads(self._noted.read_text())
            first = noted["steps"]
            for name, epoch in noted["epochs"].items():
                self.followers[name] = Follower(self.db, name, as_of=epoch + 1)
                self.followers[name].epoch = epoch
        else:
            self.prepare()
        for number, step in enumerate(self.case.steps[first:], first + 1):
            self._noting = number
            self.step(number, step)

    def step_restart(self, _: bool) -> None:
        epochs = {name: follower.epoch for name, follower in self.followers.items()}
        self._noted.write_text(json.dumps({"steps": self._noting, "epochs": epochs}))
        os.kill(os.getpid(), signal.SIGKILL)


def killed(case_id: str, folder: Path) -> int:
    """Runs a case in child processes; returns how often it was killed."""
    command = [sys.executable, "-m", "tests.spark.conformance.killed", case_id, str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    kills = 0
    while True:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != -signal.SIGKILL:
            assert done.returncode == 0, done.stderr
            return kills
        kills += 1


def main() -> None:
    run = KilledRun(sys.argv[1], Path(sys.argv[2]))
    run.run()
    run.db.close()


if __name__ == "__main__":
    main()
