"""The process that is killed: `python -m tests.crash.child '{"folder": …}'`. It prints one JSON object per line.

It opens the database, waits for all queries and sinks, and compares every view, sink and follower with `pipeline.expected`; then it commits one row after
the other, with statements and checkpoints in between. When its JVM ends, it starts another and compares again.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg
from tests.crash import pipeline
from tests.crash.pipeline import CHAIN, Rows, row
from tests.postgres import PASSWORD

import penstock
from penstock.disk.crash import VARIABLE, Armed, crash_point
from penstock.errors import PenstockError
from penstock.spark import session

SOON_S = 600.0
SETTLES = 6
"""Every so many commits it waits for the queries."""


@dataclass(frozen=True)
class Task:
    folder: str
    url: str
    """Of the PostgreSQL server; empty: there is none."""
    commits: int
    """It ends when each database has so many."""
    databases: int = 1
    """In folders and with queries of their own."""
    waits: bool = False
    """It does not end, but waits to be killed."""
    then: str = ""
    """The crash point of the process from its first comparison on."""
    jvms: tuple[str, ...] = ()
    """Where the second JVM of the process ends, the third, and so on."""

    def to_argument(self) -> str:
        return json.dumps(asdict(self))


def say(**facts: object) -> None:
    os.write(1, json.dumps(facts).encode() + b"\n")


class Follower:
    """A consumer that survives: it keeps every change that it has received in a file of its own, and goes on after the last one."""

    def __init__(self, folder: Path, view: str) -> None:
        self._view = view
        self._epoch = 0
        self._rows: Rows = Counter()
        path = folder / f"follower-{view}"
        # What was cut by a kill was not received.
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        path.write_bytes(whole)
        self._file = path.open("ab", buffering=0)
        for line in whole.splitlines():
            self._fold(*json.loads(line))

    def _fold(self, epoch: int, fresh: bool, rows: list[list[Any]]) -> None:
        assert epoch > self._epoch, f"{self._view}: epoch {epoch} came after {self._epoch}"
        self._epoch = epoch
        if fresh:
            self._rows.clear()
        for *values, weight in rows:
            self._rows[tuple(values)] += weight
        self._rows = +self._rows

    def catch_up(self, db: penstock.Database) -> None:
        with db.subscribe(self._view, as_of=self._epoch + 1) as subscription:
            while (change := subscription.next(timeout=0)) is not None:
                rows = []
                for values in change.rows():
                    weight = values.pop("__weight", 1)
                    rows.append([*(int(v) for v in values.values()), weight])
                received = [change.epoch, change.kind != "changes", rows]
                self._file.write(json.dumps(received).encode() + b"\n")
                self._fold(*received)

    def compare(self, wanted: Rows) -> None:
        assert self._rows == wanted, f"follower of {self._view}: {differs(self._rows, wanted)}"


def differs(found: Rows, wanted: Rows) -> str:
    return f"lost {list((wanted - found).items())[:5]}, too many {list((found - wanted).items())[:5]}"


class Unit:
    """One database of a life."""

    def __init__(self, task: Task, number: int) -> None:
        self._task = task
        self.number = number
        self._part = pipeline.part(number, task.databases)
        self._folder = Path(task.folder) / str(number)
        self._folder.mkdir(exist_ok=True)
        self._tables = pipeline.tables(number)
        self.db = penstock.open(
            self._folder / "data",
            master="local[2]",
            config={**pipeline.config(task.databases), "variables.PG_PASSWORD": PASSWORD},
        )
        self._followers = {v: Follower(self._folder, v) for v in self._part.followed}
        self.made = 0

    def prepare(self) -> None:
        db = self.db
        db.execute(pipeline.INPUTS)
        if not db.sql("SELECT count(*) FROM names").fetchall()[0][0]:
            db.insert("names", [(k, f"name {k}") for k in range(3)])
        db.execute("\n".join(pipeline.QUERIES[q] for q in self._part.queries))
        for name in self._sinks:
            sink = pipeline.SINKS[name]
            db.execute(sink.format(files=self._folder / "files", url=self._task.url, **self._tables))

    @property
    def _sinks(self) -> list[str]:
        return [name for name in self._part.sinks if self._task.url or name == "archive"]

    def compare(self) -> None:
        """Everything against what must be there."""
        db = self.db
        db.flush(SOON_S)
        last = db.sql("SELECT max(v) FROM latest").fetchall()[0][0]
        self.made = 0 if last is None else last + 1
        wanted = pipeline.expected(self.made)
        troubles = [(s.name, s.error) for s in db.status() if s.error]
        if any("PSK-7005" in error for _, error in troubles):
            # The JVM has ended since: this says so.
            db.flush(SOON_S)
        assert not troubles, troubles
        for view in self._part.queries:
            if view == "even":
                continue  # A stream has no contents; its follower and its sinks are compared.
            found = Counter(db.sql(f"SELECT * FROM {view}").fetchall())
            assert found == wanted[view], f"{view} after {self.made} commits: {differs(found, wanted[view])}"
        for view, follower in self._followers.items():
            follower.catch_up(db)
            follower.compare(wanted[view])
        if any(s.name == "extra" for s in db.status()):
            found = Counter(db.sql("SELECT * FROM extra").fetchall())
            parity = Counter(db.sql("SELECT k % 2, sum(v) FROM latest GROUP BY k % 2").fetchall())
            assert found == parity, f"extra: {differs(found, parity)}"
        self._compare_sinks(wanted)

    def _compare_sinks(self, wanted: dict[str, Rows]) -> None:
        if "archive" in self._sinks:
            files = sorted((self._folder / "files").glob("epoch-*.json"))
            written = Counter((json.loads(line)["v"],) for f in files for line in f.read_text().splitlines())
            assert written == wanted["even"], f"archive: {differs(written, wanted['even'])}"
        if "appended" in self._sinks:
            appended = Counter(self._asked(f"SELECT v FROM {self._tables['even']}"))
            assert appended == wanted["even"], f"appended: {differs(appended, wanted['even'])}"
        if "upserted" in self._sinks:
            rows = self._asked(f"SELECT k, n, total FROM {self._tables['sums']}")
            upserted = Counter((k, n, int(total)) for k, n, total in rows)
            assert upserted == wanted["sums"], f"upserted: {differs(upserted, wanted['sums'])}"

    def _asked(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._task.url, password=PASSWORD) as server:
            return server.execute(query.encode()).fetchall()

    def commit(self) -> None:
        n = self.made
        with self.db.transaction() as t:
            t.insert("s", [row(n)])
            t.insert("latest", [(n % 3, n)])
            t.insert("edges", [(n + 1, n)])
            if n >= CHAIN:
                t.delete("edges", [(n + 1 - CHAIN, n - CHAIN)])
        self.made += 1
        say(made=self.made, db=self.number)

    def churn(self) -> None:
        """Statements of other kinds."""
        if self._part.extra and self.made % 7 == 0:
            self.db.execute(
                "CREATE OR REPLACE MATERIALIZED VIEW extra AS SELECT k % 2 AS p, sum(v) AS v FROM latest GROUP BY k % 2"
            )
        if self._part.extra and self.made % 21 == 0:
            self.db.execute("DROP MATERIALIZED VIEW IF EXISTS extra")
        if self.made % SETTLES == 0:
            self.db.flush(SOON_S)
            for follower in self._followers.values():
                follower.catch_up(self.db)


class Life:
    """One life of all databases."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._jvms = list(task.jvms)
        self.units: list[Unit] = []
        for number in range(task.databases):
            while len(self.units) == number:
                before = jvm()
                try:
                    self.units.append(Unit(task, number))
                except PenstockError as error:
                    say(error=error.code)
                    if error.code != "PSK-7005":
                        raise
                finally:
                    if jvm() != before or before is None:
                        self._arm()

    def _arm(self) -> None:
        """The crash point of the next JVM: it is another than that of the one that runs, or none."""
        if self._jvms:
            os.environ[VARIABLE] = self._jvms.pop(0)
        else:
            os.environ.pop(VARIABLE, None)

    def prepare(self) -> None:
        for unit in self.units:
            unit.prepare()

    def compare(self) -> None:
        for unit in self.units:
            unit.compare()
        say(sound=[u.made for u in self.units], jvm=jvm())

    def go_on(self) -> None:
        while any(u.made < self._task.commits for u in self.units):
            try:
                for unit in self.units:
                    unit.commit()
                    unit.churn()
            except PenstockError as error:
                self.started_again(error)
                self.survive(self.compare)

    def survive(self, *steps: Callable[[], None]) -> None:
        """Repeats the steps until the JVM lives through all of them."""
        while True:
            try:
                for step in steps:
                    step()
                return
            except PenstockError as error:
                self.started_again(error)

    def started_again(self, error: PenstockError) -> None:
        """Starts the databases again when their JVM has ended; anything else is a defect."""
        while True:
            say(error=error.code)
            assert error.code == "PSK-7005", str(error)
            try:
                for unit in self.units:
                    before = jvm()
                    try:
                        unit.db.start()
                    finally:
                        if jvm() != before or unit is self.units[0]:
                            self._arm()
                return
            except PenstockError as again:
                error = again

    def close(self) -> None:
        for unit in self.units:
            unit.db.close()


def jvm() -> int | None:
    """The process id of the JVM."""
    process = session._spark._process
    return process.pid if process is not None else None


def main() -> None:
    task = Task(**json.loads(sys.argv[1]))
    life = Life(task)
    life.survive(life.prepare, life.compare)
    if task.then:
        assert isinstance(crash_point, Armed)
        crash_point.arm(task.then)
    life.go_on()
    while task.waits:
        signal.pause()
    life.survive(life.compare)
    life.close()
    say(ended=True)


if __name__ == "__main__":
    main()
