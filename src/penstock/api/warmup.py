"""Warms up a new JVM before the first row needs it.

Until the JVM has compiled the code on the path of a row, an epoch takes ten times as long. So synthetic rows take the whole path, from the push to the subscriber, in a temporary database of
their own, which leaves the program's database, log and figures alone. The warm-up runs while the program's database is idle, and pauses as soon as it is not, so it never competes with the
program for long. It ends when the JVM has used a budget of CPU time (`engine.warm_up_cpu_ms`), for any work.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import sleep

import pyarrow as pa

from penstock.api.database import Database, running
from penstock.api.opening import open as open_database
from penstock.config import Settings
from penstock.runtime.engine import Engine
from penstock.runtime.lifecycle import State
from penstock.spark.session import cpu_ms, first_warm_up, scratch_folder

_logger = logging.getLogger(__name__)

IDLE_S = 0.4
"""A program that pauses for less than this between two statements is not idle."""

ANSWER_S = 10.0
"""Much longer than the first epoch of a cold JVM."""

PREPARE_MS = 5_000
"""Enough for some tens of epochs, so that every class is used."""

STATEMENTS = (
    "CREATE SOURCE pushed (k BIGINT, v BIGINT, name STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)",
    "CREATE STREAM filtered AS SELECT k, v * 2 AS doubled, upper(name) AS name FROM pushed WHERE v < 900",
    "CREATE STREAM grouped AS SELECT k, sum(v) AS total, count(*) AS n, max(v) AS most FROM pushed GROUP BY k EMIT CHANGES",
    "CREATE MATERIALIZED VIEW latest AS SELECT name, last_value(v) AS v, avg(v) AS mean FROM pushed GROUP BY name",
    "CREATE TABLE points (k BIGINT PRIMARY KEY, v BIGINT)",
)
POINTS = (
    "INSERT INTO points VALUES (?, 1)",
    "UPDATE points SET v = v + 1 WHERE k = ?",
    "SELECT v FROM points WHERE k = ?",
    "DELETE FROM points WHERE k = ?",
)
KEYS = 10


class WarmUp:
    """The warm-up of one JVM, on its own thread, while the database that started it runs."""

    def __init__(self, beside: Engine, budget_ms: int) -> None:
        self._beside = beside
        self._until_ms = cpu_ms() + budget_ms
        self._head = -1

    def begin(self) -> None:
        threading.Thread(target=self._attempt, name="penstock-warm-up", daemon=True).start()

    def _attempt(self) -> None:
        try:
            self.run()
        except Exception:
            # The JVM has exited and its folder is gone, or the disk is full; the program gets the error where it matters.
            _logger.debug("the warm-up ended early", exc_info=True)

    def run(self) -> int:
        """Runs the warm-up; returns the number of rounds."""
        if not self._may_go_on():
            return 0
        # If this process is killed, the next one removes the JVM's folder, which contains this one.
        folder = Path(tempfile.mkdtemp(prefix="warm-up-", dir=scratch_folder()))
        engine = Engine(folder, _settings(self._beside.settings), silent=True)
        engine.temporary = True
        engine.ticker.stop()
        with running(engine) as db:
            for statement in STATEMENTS:
                if not self._may_go_on():
                    return 0
                db.execute(statement)
            return self._drive(db)

    def _drive(self, db: Database) -> int:
        rounds = 0
        with db.subscribe("grouped") as grouped, db.subscribe("filtered") as filtered:
            while self._may_go_on():
                # Mostly one row, as a program would push it; sometimes more.
                db.insert("pushed", _rows(rounds, 200 if rounds % 10 == 9 else 1))
                grouped.next(ANSWER_S)
                filtered.next(0)
                for statement in POINTS:
                    db.execute(statement, [rounds])
                rounds += 1
        return rounds

    def _may_go_on(self) -> bool:
        """Waits until the program's database is idle. False once the budget is used or the database is closed."""
        while self._beside.lifecycle.state is State.RUNNING and 0 <= cpu_ms() < self._until_ms:
            if self._idle():
                return True
            sleep(IDLE_S)
        return False

    def _idle(self) -> bool:
        """Whether no DDL statement is running, and there was no commit since the last call."""
        before, self._head = self._head, self._beside.log.head
        free = self._beside.ddl.acquire(blocking=False)
        if free:
            self._beside.ddl.release()
        return free and before == self._head


def _settings(given: Settings) -> Settings:
    """The program's settings, without durability and without files for other processes."""
    return given.model_copy(
        update={
            "log": given.log.model_copy(update={"wal_mode": "async"}),
            "spark": given.spark.model_copy(update={"class_archive": False}),
            "checkpoint": given.checkpoint.model_copy(update={"interval_ms": 0, "url": ""}),
            "logging": given.logging.model_copy(update={"file": False, "status": False}),
        }
    )


def _rows(number: int, count: int) -> pa.RecordBatch:
    began = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(milliseconds=number)
    values = range(number, number + count)
    return pa.record_batch(
        {
            "k": [v % KEYS for v in values],
            "v": [v % 1_000 for v in values],
            "name": [f"name {v % KEYS}" for v in values],
            "ts": [began] * count,
        }
    )


def warm_up(database: Database) -> None:
    """Starts the warm-up if this database runs, is the first of its JVM, and its settings allow it."""
    engine = database._engine
    budget = engine.settings.engine.warm_up_cpu_ms
    if budget and engine.lifecycle.state is State.RUNNING and first_warm_up():
        WarmUp(engine, budget).begin()


def prepare() -> None:
    """Writes the class archive, with all classes that the warm-up loads, and the command that starts a JVM with it."""
    with open_database(config={"engine.warm_up_cpu_ms": 0}) as database:
        WarmUp(database._engine, PREPARE_MS).run()
    # Only a process that starts with the archive stores the command.
    subprocess.run([sys.executable, "-c", "import penstock; penstock.open().close()"], check=True)
