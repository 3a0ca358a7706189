"""Kills a database without a JVM again and again: `python -m tests.crash.storage [--kills N] [--seed S] [--power]`.

Everything is real but Spark, in whose place queries copy their input. So a life takes a fraction of a second, and each step of the log, the catalogue, checkpoints,
restores, statements and sinks is met hundreds of times. Each life is a fork of one process that has loaded everything; it compares every object with what must be there.

With `--power`, as root on Linux, each kill is a power cut: the database is on a disk of its own (`tests.crash.disks`), and the next life has what was synced, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

# Crash points are armed when they are imported, and each life names its own.
os.environ.setdefault("PENSTOCK_CRASH_AT", "never")

import pytest
from tests.crash.disks import SMALL, Disk, possible
from tests.unit.runtime.engines import Database
from tests.unit.runtime.storing import settings

from penstock.api.database import Transaction
from penstock.disk import crash_point
from penstock.disk.crash import Armed
from penstock.runtime.closed import closed_database
from penstock.runtime.engine import Engine
from penstock.runtime.jobs.remote import remote
from penstock.runtime.jobs.savepoints import import_checkpoint

STEPS = {
    "log.written": 30, "log.synced": 30, "log.rolled": 4, "log.trimmed": 2, "file.written": 40, "file.replaced": 40, "checkpoint.linked": 3, "checkpoint.written": 3,
    "checkpoint.pruned": 2, "ddl.started": 4, "ddl.written": 4, "ddl.removing": 8, "epoch.recorded": 30, "sink.begun": 12, "sink.written": 12, "sink.prepared": 12,
    "sink.decided": 12, "files.renamed": 12, "sink.committed": 12, "sink.announced": 12, "restore.prepared": 1, "restore.decided": 1, "restore.moved": 3,
    "restore.replaced": 1, "restore.finished": 1, "files.taken_back": 2, "sink.taken_back": 1, "upload.copied": 3,
    "upload.listed": 3, "upload.pruned": 2,
}  # fmt: skip
"""The named steps, and at which pass of each a life is killed, at most."""
LIFE = 25
SOON_S = 120.0

SCRIPT = """
CREATE TABLE IF NOT EXISTS t (k BIGINT NOT NULL, v BIGINT, PRIMARY KEY (k));
CREATE SOURCE IF NOT EXISTS s (v BIGINT);
CREATE MATERIALIZED VIEW IF NOT EXISTS a AS SELECT k, v FROM t;
CREATE MATERIALIZED VIEW IF NOT EXISTS b AS SELECT k, v FROM a;
CREATE MATERIALIZED VIEW IF NOT EXISTS c AS SELECT v FROM s;
CREATE STREAM IF NOT EXISTS d AS SELECT v FROM s;
CREATE SINK IF NOT EXISTS f FROM d INTO FILES (path = '{files}', format = 'json') WITH (guarantee = 'exactly-once');
"""


def say(**facts: object) -> None:
    os.write(1, json.dumps(facts).encode() + b"\n")


class Life:
    """One life, in a process of its own."""

    def __init__(self, folder: Path, chance: random.Random, *, syncs: bool) -> None:
        self._folder = folder
        self._chance = chance
        self._syncs = syncs
        self._patch = pytest.MonkeyPatch()
        self.made = 0
        self._saved: dict[int, int] = {}

    def run(self) -> None:
        place = (self._folder / "there").as_uri()
        self._check_uploaded(place)
        small = settings(
            log={"wal_mode": "sync", "segment_bytes": 4096, "retain_bytes": 8192},
            checkpoint={"interval_ms": 0, "url": place},
        )
        self._patch.setattr("tests.unit.runtime.engines.Engine", lambda folder, _: Engine(folder, small))
        if not self._syncs:
            self._patch.setattr(os, "fsync", lambda fd: None)
        self.db = Database(self._folder / "db", self._patch)
        self.db.run(SCRIPT.format(files=self._folder / "files"))
        self.db.engine.start()
        self.compare()
        for _ in range(LIFE):
            self.commit()
            self.churn()
        self.compare()
        self.db.engine.close()
        say(ended=True)

    def _check_uploaded(self, place: str) -> None:
        """Every checkpoint that is listed elsewhere is whole, and the newest makes a database."""
        there = remote(place)
        ids = there.ids()
        for id in ids:
            there.verify(id)
        if ids and self._chance.random() < 0.2:
            copy = self._folder / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            import_checkpoint(place, copy)
            with closed_database(copy) as storage:
                assert {o.name for o in storage.catalog.objects()} >= {"t", "s", "a", "b", "c", "d", "f"}

    def compare(self) -> None:
        db = self.db
        db.engine.flush(SOON_S)
        n = self.made = 1 + max((v for _, v in db.rows("t")), default=-1)
        latest = Counter({(v % 5, v): 1 for v in range(max(0, n - 5), n)})
        every = Counter({(v,): 1 for v in range(n)})
        troubles = {
            o.name: s.error for i, s in db.engine.sinks.items() if s.error for o in [db.engine.catalog.by_id(i)]
        }
        assert not troubles and not db.engine.refusals, (troubles, db.engine.refusals)
        for name, wanted in {"t": latest, "a": latest, "b": latest, "c": every}.items():
            found = db.rows(name)
            assert found == wanted, f"{name} after {n}: lost {wanted - found}, too many {found - wanted}"
        if db.engine.catalog.get("extra") is not None:
            assert db.rows("extra") == latest
        files = sorted((self._folder / "files").glob("epoch-*.json"))
        written = Counter((json.loads(line)["v"],) for f in files for line in f.read_text().splitlines())
        assert written == every, f"the sink after {n}: lost {every - written}, too many {written - every}"
        say(sound=n)

    def commit(self) -> None:
        n = self.made
        transaction = Transaction(self.db.engine)
        transaction.insert("t", [(n % 5, n)])
        transaction.insert("s", [(n,)])
        transaction._commit()
        self.made += 1
        say(made=self.made)

    def churn(self) -> None:
        turn = self._chance.random()
        if turn < 0.12:
            self.db.run("CREATE OR REPLACE MATERIALIZED VIEW extra AS SELECT k, v FROM t")
        elif turn < 0.18:
            self.db.run("DROP MATERIALIZED VIEW IF EXISTS extra")
        elif turn < 0.34:
            (id,) = self.db.run("CHECKPOINT").column("checkpoint").to_pylist()
            self._saved[id] = self.made
        elif turn < 0.42:
            self.db.engine.ticker.trim()
        elif turn < 0.48 and self._saved:
            self._restore()

    def _restore(self) -> None:
        kept = self.db.engine.storage.checkpoints.ids()
        known = [i for i in self._saved if i in kept]
        if known:
            id = self._chance.choice(known)
            say(restoring=self._saved[id])
            self.db.run(f"RESTORE FROM CHECKPOINT {id}")
            self.compare()


class Child:
    """A fork that lives one life."""

    def __init__(self, folder: Path, crash_at: str, seed: int, *, syncs: bool) -> None:
        self.first: int | None = None
        """The number of commits with which it began."""
        self.made: int | None = None
        self.restoring: int | None = None
        self.ended = False
        self._left = b""
        read, write = os.pipe()
        err = folder / "stderr"
        self.pid = os.fork()
        if not self.pid:
            os.dup2(write, 1)
            os.dup2(os.open(err, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            code = 1
            try:
                assert isinstance(crash_point, Armed)
                crash_point.arm(crash_at)
                Life(folder, random.Random(seed), syncs=syncs).run()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(write)
        self._out = read

    def listen(self, until: float) -> bool:
        """Takes what it says for at most so long; False once it has ended."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._out, selectors.EVENT_READ)
            if not selector.select(max(0.0, until - time.monotonic())):
                return True
        data = os.read(self._out, 1 << 16)
        *lines, self._left = (self._left + data).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if "sound" in said:
                self.first = said["sound"] if self.first is None else self.first
                self.restoring, self.made = None, said["sound"]
            self.made = said.get("made", self.made)
            self.restoring = said.get("restoring", self.restoring)
            self.ended = self.ended or "ended" in said
        return bool(data)

    def wait(self) -> int:
        os.close(self._out)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Harness:
    """Lives of one database, one after the other."""

    def __init__(self, folder: Path, seed: int, disk: Disk | None = None) -> None:
        self._folder = disk.mounted if disk is not None else folder
        self._disk = disk
        self._chance = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.lives = 0
        self.made = 0
        self._or: int | None = None

    def run(self, kills: int, steps: tuple[str, ...] = tuple(STEPS)) -> None:
        """So many kills; then one life that ends in order."""
        while self.kills.total() < kills:
            step = self._chance.choice(steps) if self._chance.random() < 0.8 else None
            self._live(step)
        self._live("never")

    def _live(self, step: str | None) -> None:
        at = f"{step}:{self._chance.randint(1, STEPS.get(step, 1))}" if step is not None else "never"
        child = Child(self._folder, at, self._chance.randrange(1 << 30), syncs=self._disk is not None)
        until = time.monotonic() + (SOON_S if step is not None else self._chance.uniform(0.05, 1.5))
        while child.listen(until):
            if time.monotonic() >= until:
                assert step is None, f"a life with a crash at {at} lasts for ever"
                os.kill(child.pid, signal.SIGKILL)
                until = time.monotonic() + SOON_S
        code = child.wait()
        self.lives += 1
        if code != -signal.SIGKILL and not (code == 0 and child.ended):
            raise AssertionError(f"exit {code} at {at}\n{(self._folder / 'stderr').read_text()}")
        if child.made is not None:
            # What was acknowledged, perhaps one commit more; after a restore that was cut off, perhaps what it has.
            allowed = {self.made, self.made + 1} | ({self._or} if self._or is not None else set())
            assert child.first in allowed, f"{child.first} commits are there, {allowed} were to be"
            self.made, self._or = child.made, child.restoring
        self.kills[step or "at a moment"] += code == -signal.SIGKILL
        if self._disk is not None and code == -signal.SIGKILL:
            self._disk.cut()
        if self.lives % 25 == 0:
            sys.stdout.write(f"{self.kills.total()} kills in {self.lives} lives, {self.made} commits\n")
            sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--power", action="store_true", help="cut the power, as root")
    options = parser.parse_args()
    if options.power and not possible():
        sys.exit("Only root can mount the images, with mkfs.ext4 and loop devices.")
    folder = Path(tempfile.mkdtemp(prefix="penstock-storage-crash-"))
    disk = Disk(folder, SMALL) if options.power else None
    sys.stdout.write(f"seed {options.seed}, folder {folder}\n")
    sys.stdout.flush()
    harness = Harness(folder, options.seed, disk)
    begun = time.monotonic()
    try:
        harness.run(options.kills)
        if disk is not None:
            disk.remove()
        # After a failure the folder is the evidence.
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        took = time.monotonic() - begun
        sys.stdout.write(
            f"{harness.kills.total()} kills in {harness.lives} lives, {took:.0f} s: {dict(harness.kills)}\n"
        )


if __name__ == "__main__":
    main()
