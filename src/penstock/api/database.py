"""The database that `penstock.open` returns."""

from __future__ import annotations

import atexit
import builtins
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.api.source import SourceHandle
from penstock.api.statements import Params, RestrictedSession, Statements
from penstock.api.statusfile import StatusFile
from penstock.catalog.objects import ObjectInfo
from penstock.config import Settings
from penstock.connect import Receiver, Transactional, register_callable
from penstock.errors import fail
from penstock.runtime.engine import Engine
from penstock.runtime.jobs.savepoints import export_checkpoint
from penstock.runtime.lifecycle import State
from penstock.runtime.statements import execute as ex
from penstock.runtime.statements.inspect import ObjectStatus, find, status
from penstock.runtime.statements.prepared import PreparedStatements
from penstock.runtime.statements.restore import Restored, restore
from penstock.runtime.statements.session import Session
from penstock.runtime.statements.topology import Topology, topology
from penstock.runtime.statements.totals import DatabaseStatus, database_status
from penstock.runtime.storage.writes import Write
from penstock.serve.figures import SubscriptionFigures
from penstock.sql.script import parse_script

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from prometheus_client import CollectorRegistry


_open: weakref.WeakSet[Database] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Closes databases that the program left open, before the interpreter shuts down."""
    for database in [*_open]:
        database.close()


def opened(folder: Path | None, settings: Settings, start: bool, progress: Callable[[str], None] | None) -> Database:
    """Opens the database in a folder and starts its queries if `start` is set; None is a temporary folder."""
    engine = Engine(folder, settings, progress)
    if start and progress:
        progress("starting queries")
    return running(engine, start)


def running(engine: Engine, start: bool = True) -> Database:
    """The database of an engine, which is closed at process exit at the latest."""
    database = Database(engine)
    _open.add(database)
    try:
        if start:
            engine.start()
    except BaseException:
        database.close()
        raise
    return database


class Transaction:
    """Writes that become one commit when the `with` block ends without an error."""

    def __init__(self, engine: Engine, prepared: PreparedStatements | None = None) -> None:
        self._engine = engine
        self._prepared = prepared or PreparedStatements()
        self._writes: list[Write] = []
        self.lsn: int | None = None

    def insert(self, name: str, data: object) -> None:
        """Checks the rows now and stores them at the commit."""
        info = self._engine.writer.target(name)
        self._writes.append((info, "insert", self._engine.storage.feed(info).part(data)))

    def delete(self, name: str, data: object) -> None:
        """Deletes whole rows from a table."""
        info = self._engine.writer.target(name)
        self._writes.append((info, "delete", self._engine.storage.feed(info).part(data)))

    def execute(self, sql: str, params: Params = None) -> None:
        """Runs INSERT, UPDATE and DELETE statements as part of the commit. Each sees the transaction's earlier writes."""
        session = Session(self._engine, pending=self._writes, prepared=self._prepared)
        ex.execute(session, sql, params)

    def _commit(self) -> None:
        if self._writes:
            self._engine.check_open()
            self.lsn = self._engine.writer.commit(self._writes)


class Database(Statements):
    """An open database. All methods are thread-safe. After `close()`, every method except `close()` raises."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(Session(engine))
        self._status = StatusFile(engine) if engine.settings.logging.status else None

    # Statements

    def explain(self, sql: str, analyze: bool = False) -> str:
        """The plan of a SELECT or CREATE statement as text."""
        if len(parse_script(sql, connectors="keep", programs=True)) != 1:
            raise fail("PSK-1001", "EXPLAIN needs exactly one statement.")
        rows = self.sql(f"EXPLAIN {'ANALYZE ' if analyze else ''}{sql}").fetchall()
        return "\n".join(str(r[0]) for r in rows)

    def session(self, **variables: str | int | float | bool | None) -> RestrictedSession:
        """A session that can only read, and to which the row rules of CREATE POLICY apply: `current_setting('x')` in a rule is the variable `x`."""
        self._engine.check_open()
        return RestrictedSession(Session(self._engine, variables=dict(variables)))

    # Rows in

    def insert(self, name: str, data: object) -> int:
        """Inserts rows into a source or table in one commit. Returns its LSN once it is durable. On an error, nothing is stored."""
        self._engine.check_open()
        return self._engine.writer.insert(name, data)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Writes to several objects in one atomic commit."""
        self._engine.check_open()
        transaction = Transaction(self._engine, self._session.prepared)
        yield transaction
        transaction._commit()

    def source(self, name: str) -> SourceHandle:
        self._engine.check_open()
        return SourceHandle(self._engine, self._engine.writer.target(name))

    # Progress and lifecycle

    def flush(self, timeout: float | None = None) -> None:
        """Returns once every running query has processed everything committed before the call."""
        self._engine.check_open()
        self._engine.flush(timeout)

    def wait(self, lsn: int, timeout: float | None = None) -> None:
        """Returns once every running query has processed everything up to an LSN."""
        self._engine.wait(lsn, timeout)

    def start(self) -> None:
        """Starts every query, sink and connector. If the JVM exited, starts a new one first."""
        if self._engine.lifecycle.state is not State.FAULTED:
            self._engine.check_open()
        self._engine.start()

    def stop(self) -> None:
        self._engine.check_open()
        self._engine.stop()

    def close(self) -> None:
        status, self._status = self._status, None
        if status is not None:
            status.close()
        for cursor in builtins.list(self._session.cursors.values()):
            cursor.cancel()
        self._engine.close()

    @property
    def state(self) -> str:
        return self._engine.lifecycle.state.value

    def checkpoint(self) -> int:
        """Waits for all queries, writes contents to disk and records the log position. Returns the checkpoint's number."""
        self._engine.check_open()
        return ex.checkpoint(self._engine)

    def checkpoints(self) -> list[dict[str, int]]:
        """The retained checkpoints, oldest first, including those made by interval and by `close`."""
        self._engine.check_open()
        return [
            {"id": c.id, "lsn": c.lsn, "time_ms": c.time_ms, "duration_ms": c.duration_ms, "bytes": c.bytes}
            for c in self._engine.checkpoints.kept
        ]

    def restore(self, checkpoint: int, *, backup: bool = True, keep_delivered: bool = False) -> Restored:
        """Restores the whole database to a checkpoint, including objects dropped since. LSNs and epochs continue after the latest ones.

        `backup` keeps the previous state as a checkpoint. Sinks undo what they have delivered since; if one cannot, this raises PSK-5022 unless `keep_delivered` is set.
        """
        self._engine.check_open()
        return restore(self._engine, _number(checkpoint), backup=backup, keep_delivered=keep_delivered)

    def export_checkpoint(self, checkpoint: int, place: str | Path) -> None:
        """Copies a checkpoint to an empty folder, `file://…` or `s3://bucket/prefix`, from which `penstock checkpoint import` makes a database elsewhere."""
        self._engine.check_open()
        if not isinstance(place, str | Path):
            raise fail("PSK-0009", f"{place!r} is no place.", hint="Pass a folder, file://…, or s3://bucket/prefix.")
        export_checkpoint(self._engine.storage.checkpoints, _number(checkpoint), str(place))

    # Insight

    def status(self) -> list[ObjectStatus]:
        """The state of every object. Works even if the JVM has exited."""
        if self._engine.lifecycle.state is not State.FAULTED:
            self._engine.check_open()
        return status(self._engine)

    def totals(self) -> DatabaseStatus:
        """The figures of the database as a whole. Works even if the JVM has exited."""
        if self._engine.lifecycle.state is not State.FAULTED:
            self._engine.check_open()
        return database_status(self._engine)

    def metrics(self) -> dict[str, ObjectStatus]:
        """The result of `status`, by name."""
        return {s.name: s for s in self.status()}

    def subscriptions(self) -> list[SubscriptionFigures]:
        """Every open subscription with its position and delivery figures."""
        self._engine.check_open()
        return [s.figures for s in self._engine.hub.subscriptions()]

    def prometheus(self) -> str:
        """All figures in Prometheus' text format. To serve them, pass `registry()` to `prometheus_client`."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry()).decode()

    def registry(self) -> CollectorRegistry:
        """A Prometheus registry that reads the figures of this database whenever it is collected. Works even if the JVM has exited."""
        from penstock.api.exposition import registry

        if self._engine.lifecycle.state is not State.FAULTED:
            self._engine.check_open()
        return registry(self._engine)

    def topology(self) -> Topology:
        self._engine.check_open()
        return topology(self._engine)

    @property
    def watermark(self) -> int | None:
        """The smallest watermark of all sources that have one."""
        self._engine.check_open()
        marks = [self._engine.log.watermark(o.id) for o in self._engine.catalog.objects() if o.watermark is not None]
        known = [m for m in marks if m is not None]
        return min(known) if known and len(known) == len(marks) else None

    def register_function(self, function: Callable[..., Any], name: str | None = None, returns: str = "string") -> None:
        """Makes a Python function callable in SQL. `returns` is the Spark type of its result."""
        self._engine.check_open()
        name = name or getattr(function, "__name__", None)
        if not callable(function) or not name:
            raise fail("PSK-0009", f"{function!r} has no name.", hint="Pass name='…'.")
        self._engine.register_function(name, function, returns)

    def register_callable(self, name: str, function: Receiver | Transactional) -> None:
        """Registers `function(epoch, table)`, or a transactional object, for `INTO PYTHON (callable = 'name')` sinks."""
        self._engine.check_open()
        register_callable(name, function)

    @property
    def spark(self) -> Any:
        self._engine.check_open()
        return self._engine.compute.spark

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<penstock.Database {self._engine.folder} {self.state}>"

    def _object(self, name: str) -> ObjectInfo:
        return find(self._engine, name)


def _number(checkpoint: int) -> int:
    if not isinstance(checkpoint, int) or isinstance(checkpoint, bool):
        raise fail(
            "PSK-0009", f"{checkpoint!r} is not the number of a checkpoint.", hint="db.checkpoints() lists them."
        )
    return checkpoint
