"""Kills databases again and again, and has each life compare everything with what an uninterrupted run gives: `python -m tests.crash.harness [--kills N] [--seed S] [--databases D]`.

Several databases share a process and its JVM: most of the cost of a kill is a JVM that starts. A kill ends all of them, each in the middle of something else, so it counts for each.
With `--databases 1` there is one, which has all queries.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.crash.child import Task
from tests.crash.pipeline import DATABASES, created
from tests.postgres import PostgresServer

from penstock.disk.crash import VARIABLE

ROOT = Path(__file__).parents[2]
LIFE = 16
"""At most so many commits in a life, of all databases; at least a few of each."""
SOON_S = 1500.0

STEPS = {
    "log.written": 24,
    "log.synced": 24,
    "log.rolled": 1,
    "log.trimmed": 1,
    "file.written": 16,
    "file.replaced": 16,
    "checkpoint.linked": 2,
    "checkpoint.written": 2,
    "checkpoint.pruned": 2,
    "contents.written": 6,
    "contents.published": 6,
    "contents.merged": 2,
    "ddl.started": 2,
    "ddl.written": 2,
    "ddl.removing": 4,
    "epoch.recorded": 16,
    "sink.begun": 8,
    "sink.written": 8,
    "sink.prepared": 8,
    "sink.decided": 8,
    "files.renamed": 4,
    "sink.committed": 8,
    "sink.announced": 8,
    "jvm.begun": 10,
    "jvm.committed": 16,
    "jvm.ran": 10,
    "jvm.delivered": 10,
    "jvm.done": 10,
}
"""The named steps, and at which pass of each a life is killed, at most. Lives are short: most of the cost of a kill is the work before it."""
PATIENCE_S = 12.0
"""So long after its first comparison a life may take to come to its step."""
AT_WORK = 0.7
"""How many of the kills at a step of Python come after the first comparison."""
JVM_STEPS = tuple(s for s in STEPS if s.startswith("jvm."))


class Child:
    """One life of the database."""

    def __init__(self, task: Task, crash_at: str = "") -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), VARIABLE: crash_at}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.child", task.to_argument()],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env=environment,
        )  # fmt: skip
        self._left = b""
        self.made = [0] * task.databases
        self.sound = 0
        """How often everything was compared."""
        self.jvm: int | None = None
        self.ended = False
        self.jvms_lost = 0

    def listen(self, until: float) -> bool:
        """Takes what it says for at most so long; False once it has ended."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(max(0.0, until - time.monotonic())):
                return True
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        *lines, self._left = (self._left + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))
        return bool(data)

    def _take(self, said: dict[str, Any]) -> None:
        if "made" in said:
            self.made[said["db"]] = said["made"]
        if "sound" in said:
            for there, made in zip(said["sound"], self.made, strict=True):
                assert there in (made, made + 1) or not self.sound, "a commit is lost"
            self.made, self.jvm = said["sound"], said["jvm"]
            self.sound += 1
        self.jvms_lost += "error" in said
        self.ended = self.ended or "ended" in said

    def kill(self) -> None:
        self.process.kill()
        while self.listen(time.monotonic() + SOON_S):
            pass

    def close(self) -> str:
        """Ends it if need be; what it has said on stderr."""
        self.process.kill()
        _, err = self.process.communicate()
        return err.decode(errors="replace")


class Harness:
    def __init__(
        self, folder: Path, server: PostgresServer, seed: int, say: Callable[[str], object], databases: int = DATABASES
    ) -> None:
        server.execute(*created(databases))
        self._databases = databases
        self._folder = folder
        self._url = server.url
        self._say = say
        self._chance = random.Random(seed)
        self.kills: Counter[str] = Counter()
        """Of processes and JVMs, by how."""
        self.made = [0] * databases
        self._child: Child | None = None

    @property
    def killed(self) -> int:
        """How often a database was killed."""
        return self.kills.total() * self._databases

    def run(self, kills: int, steps: tuple[str, ...] = ()) -> None:
        """So many kills of a database, at the named steps first; then one life that ends in order."""
        try:
            self._run(kills, list(steps))
        finally:
            # A failure leaves nobody behind.
            if self._child is not None:
                self._child.process.kill()

    def _run(self, kills: int, queue: list[str]) -> None:
        while self.killed < kills:
            step = queue.pop(0) if queue else None
            if step is None and self._chance.random() < 0.5:
                step = self._chance.choice(list(STEPS))
            if step is not None:
                self._at_step(step)
            else:
                self._chance.choice([self._at_a_moment, self._while_it_opens, self._its_jvm])()
        child = self._born(commits=max(self.made) + 1)
        self._live(child)
        assert child.ended and child.process.returncode == 0

    def _born(self, crash_at: str = "", commits: int | None = None, **more: Any) -> Child:
        each = max(3, LIFE // self._databases)
        commits = commits or max(self.made) + each
        self._child = Child(Task(str(self._folder), self._url, commits, self._databases, **more), crash_at)
        return self._child

    def _live(self, child: Child, seconds: float = SOON_S, sound: int | None = None) -> bool:
        """Lets it live, for some time or until it has compared so often; True if it lives still. A life that ends otherwise than by a kill is a defect."""
        until = time.monotonic() + seconds
        while child.listen(until):
            if time.monotonic() >= until or (sound is not None and child.sound >= sound):
                return True
        err = child.close()
        code = child.process.returncode
        assert code == -signal.SIGKILL or (code == 0 and child.ended), f"exit {code} after {child.made} commits\n{err}"
        self._remember(child)
        return False

    def _remember(self, child: Child) -> None:
        self._say(
            f"{self.killed} kills, {sum(child.made)} commits, compared {child.sound} times, {child.jvms_lost} JVMs lost"
        )
        if child.sound:
            # One commit more than was acknowledged may be durable.
            sound = all(there >= made for there, made in zip(child.made, self.made, strict=True))
            assert sound, f"{self.made} commits were acknowledged, {child.made} are there"
            self.made = child.made

    def _end(self, child: Child, how: str) -> None:
        child.kill()
        child.close()
        self._remember(child)
        self.kills[how] += 1

    def _at_step(self, step: str) -> None:
        if step in JVM_STEPS:
            self._at_steps_of_its_jvms(step)
            return
        point = f"{step}:{self._chance.randint(1, STEPS[step])}"
        if self._chance.random() < AT_WORK:
            # So many databases pass most steps while they are opened.
            child = self._born("never", then=point, waits=True)
        else:
            child = self._born(point, waits=True)
        if self._live(child, sound=1) and self._live(child, PATIENCE_S):
            # It passes the step too seldom.
            self._end(child, "at a moment")
        else:
            self.kills[step] += 1

    def _at_steps_of_its_jvms(self, step: str) -> None:
        # Python survives the end of its JVM, so one life has several.
        steps = [step, *self._chance.choices(JVM_STEPS, k=3)]
        points = [f"{s}:{self._chance.randint(1, STEPS[s])}" for s in steps]
        child = self._born(points[0], jvms=tuple(points[1:]))
        if self._live(child):
            raise AssertionError(f"a life with a crash at {step} lasts for ever")
        # One whose JVMs pass their steps too seldom ends in order.
        self.kills.update(steps[: child.jvms_lost])

    def _at_a_moment(self) -> None:
        child = self._born()
        if self._live(child, sound=1) and self._live(child, self._chance.uniform(0, 2)):
            self._end(child, "at a moment")

    def _while_it_opens(self) -> None:
        child = self._born()
        if self._live(child, self._chance.uniform(0.3, 7 + self._databases)):
            self._end(child, "while it opens")

    def _its_jvm(self) -> None:
        """Several JVMs of one process, then the process."""
        child = self._born()
        for n in range(1, 5):
            if not (self._live(child, sound=n) and self._live(child, self._chance.uniform(0, 1))):
                return
            if child.sound == n and child.jvm is not None:
                os.kill(child.jvm, signal.SIGKILL)
                self.kills["JVM"] += 1
        if self._live(child, sound=5):
            self._end(child, "after its JVM")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--databases", type=int, default=DATABASES, help="in one process")
    options = parser.parse_args()
    server = PostgresServer()
    begun = time.monotonic()
    try:
        folder = Path(tempfile.mkdtemp(prefix="penstock-crash-"))
        harness = Harness(folder, server, options.seed, say, options.databases)
        say(f"seed {options.seed}, folder {folder}")
        try:
            # All steps before any of them again, in an order of its own: a run of a few kills must not always have the same.
            harness.run(options.kills, tuple(random.Random(options.seed).sample(tuple(STEPS), len(STEPS))))
            # After a failure the folder is the evidence.
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            took = time.monotonic() - begun
            say(
                f"{harness.killed} kills of a database, {sum(harness.made)} commits, {took:.0f} s; {harness.kills.total()} of a process: {dict(harness.kills)}"
            )
    finally:
        server.remove()


if __name__ == "__main__":
    main()
