"""Cuts the power of a database again and again: `python -m tests.crash.power [--cuts N] [--seed S]`, as root on Linux.

The database lives on an ext4 file system in an image, which is mounted so that the kernel writes nothing by itself for a long time. The image then has what was
synced, and a copy of it is the disk after a power cut. While one process works, the image is copied at many moments; another process opens each copy, where the
original was, and compares everything.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.crash.child import Life, Task, say
from tests.crash.disks import LARGE, Disk, possible, run
from tests.crash.harness import ROOT, Child

from penstock.disk.crash import VARIABLE

LIFE = 100_000


class Cutter:
    """One process that works, and the copies of its disk."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._chance = random.Random(seed)
        self._disk = Disk(folder, LARGE)
        self._child = Child(Task(str(self._disk.mounted), "", LIFE))

    def cut(self, number: int) -> tuple[Path, int]:
        """A copy of the disk after some work, and how many commits had been acknowledged. Until the next one the process is stopped, so that both cores are there for what opens the copy."""
        child = self._child
        self._signal(signal.SIGCONT)
        until = time.monotonic() + self._chance.uniform(0.05, 2)
        while time.monotonic() < until or not child.sound:
            if not child.listen(max(until, time.monotonic() + 0.1)):
                raise AssertionError(child.close())
        copy = self._folder / f"cut-{number}"
        acknowledged = child.made[0]
        self._signal(signal.SIGSTOP)
        run("cp", "--sparse=always", self._disk.image, copy)
        return copy, acknowledged

    def _signal(self, number: signal.Signals) -> None:
        for pid in (self._child.process.pid, self._child.jvm):
            if pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    def close(self) -> None:
        # A JVM that is stopped would not notice that its process has ended.
        self._signal(signal.SIGCONT)
        self._child.close()
        self._disk.remove()


class Verifier:
    """A process that sees each copy where the original was, in a mount namespace of its own."""

    def __init__(self, mounted: Path) -> None:
        command = ["unshare", "-m", sys.executable, "-m", "tests.crash.power", "--verify", str(mounted)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), VARIABLE: ""}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
        )

    def verify(self, image: Path) -> int:
        """The commits that a copy has; all of it was compared."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{image}\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            said = json.loads(line)
            if "verified" in said:
                return int(said["verified"])
        raise AssertionError(f"{image} is not sound")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def verify(mounted: Path) -> None:
    """Verifies the images that are named on standard input."""
    # The original is mounted there in the outer namespace.
    run("umount", "-l", mounted)
    for line in sys.stdin:
        run("mount", "-o", "loop", line.strip(), mounted)
        life = Life(Task(str(mounted), "", 0))
        try:
            life.prepare()
            life.compare()
            say(verified=life.units[0].made)
        finally:
            life.close()
            run("umount", "-l", mounted)


def cut_and_compare(folder: Path, cuts: int, seed: int) -> int:
    """So many power cuts; the number of commits before the last."""
    cutter = Cutter(folder, seed)
    verifier: Verifier | None = None
    made = 0
    try:
        for number in range(cuts):
            copy, made = cutter.cut(number)
            verifier = verifier or Verifier(folder / "mounted")
            found = verifier.verify(copy)
            # More may have been durable than was acknowledged: one, or as many as were acknowledged and not read yet.
            assert found >= made, f"{made} commits were acknowledged before the cut, {found} are there after it"
            copy.unlink()
            sys.stdout.write(f"{number + 1} cuts, {found} commits\n")
            sys.stdout.flush()
    finally:
        if verifier is not None:
            verifier.close()
        cutter.close()
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--verify", type=Path)
    options = parser.parse_args()
    if options.verify is not None:
        verify(options.verify)
        return
    if not possible():
        sys.exit("Only root can mount the images, with mkfs.ext4 and loop devices.")
    folder = Path(tempfile.mkdtemp(prefix="penstock-power-"))
    try:
        cut_and_compare(folder, options.cuts, options.seed)
    finally:
        with suppress(OSError):
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
