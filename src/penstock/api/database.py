"""The database that `penstock.open` returns."""

from __future__ import annotations

import asyncio
import atexit
import builtins
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.api.result import Result
from penstock.api.source import SourceHandle
from penstock.catalog.objects import ObjectInfo
from penstock.config import Settings
from penstock.connect import register_callable
from penstock.errors import fail
from penstock.runtime.engine import Engine
from penstock.runtime.lifecycle import State
from penstock.runtime.statements import execute as ex
from penstock.runtime.statements.inspect import ObjectStatus, find, status
from penstock.runtime.statements.prepared import PreparedStatements
from penstock.runtime.statements.session import Session
from penstock.runtime.statements.subscribe import subscribe
from penstock.runtime.statements.topology import Topology, topology
from penstock.runtime.storage.writes import Write
from penstock.serve.change import Change
from penstock.serve.figures import SubscriptionFigures
from penstock.serve.options import Policy, SubscribeOptions
from penstock.serve.subscription import Subscription
from penstock.sql import statements as st
from penstock.sql.script import parse_condition, parse_script

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

Params = Sequence[object] | Mapping[str, object] | None


_open: weakref.WeakSet[Database] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Closes databases that the program left open, before the interpreter shuts down."""
    for database in [*_open]:
        database.close()


def opened(folder: Path | None, settings: Settings, start: bool, progress: Callable[[str], None] | None) -> Database:
    """Opens the database in a folder and starts its queries if `start` is set; None is a temporary folder."""
    engine = Engine(folder, settings, progress)
    database = Database(engine)
    _open.add(database)
    try:
        if start:
            if progress:
                progress("starting queries")
            engine.start()
    except BaseException:
        engine.close()
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


class Database:
    """An open database. All methods are thread-safe. After `close()`, every method except `close()` raises."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._session = Session(engine)

    # Statements

    def execute(self, sql: str, params: Params = None) -> Result | Subscription | None:
        """Runs one or more statements and returns the result of the last."""
        outcome = ex.execute(self._session, sql, params)
        return Result(outcome) if isinstance(outcome, pa.Table) else outcome

    def sql(self, sql: str, params: Params = None) -> Result:
        """Runs statements and returns the rows of the last."""
        outcome = self.execute(sql, params)
        if isinstance(outcome, Result):
            return outcome
        if isinstance(outcome, Subscription):
            outcome.cancel()
            raise fail(
                "PSK-0009", "SUBSCRIBE returns a stream of changes, not rows.", hint="Use db.subscribe or db.execute."
            )
        return Result(pa.table({}))

    def explain(self, sql: str, analyze: bool = False) -> str:
        """The plan of a SELECT or CREATE statement as text."""
        if len(parse_script(sql, connectors="keep", programs=True)) != 1:
            raise fail("PSK-1001", "EXPLAIN needs exactly one statement.")
        rows = self.sql(f"EXPLAIN {'ANALYZE ' if analyze else ''}{sql}").fetchall()
        return "\n".join(str(r[0]) for r in rows)

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

    # Changes out

    def subscribe(
        self,
        name_or_select: str,
        *,
        snapshot: bool = False,
        as_of: int | None = None,
        up_to: int | None = None,
        where: str | None = None,
        envelope: str = "diff",
        progress: bool = False,
        policy: Policy = "block",
        buffer_bytes: int | None = None,
        buffer_messages: int | None = None,
        as_of_lsn: int | None = None,
        up_to_lsn: int | None = None,
        name: str | None = None,
        on_change: Callable[[Change], object] | None = None,
        on_error: Callable[[BaseException], object] | None = None,
    ) -> Subscription:
        """Subscribes to the changes of a stream, view, table or SELECT: from now on, from a past epoch, or after an LSN.

        `as_of_lsn` continues after the last message of an earlier subscription (`change.lsn`): what it missed is replayed, and where that is
        no longer retained, the first message is a resync. `up_to_lsn` ends the subscription when the log has passed that LSN. SELECTs that mean the same share
        one query, which ends with its last subscription. `name` is shown in SHOW SUBSCRIPTIONS.
        """
        numbers = {
            "as_of": as_of,
            "up_to": up_to,
            "buffer_bytes": buffer_bytes,
            "buffer_messages": buffer_messages,
            "as_of_lsn": as_of_lsn,
            "up_to_lsn": up_to_lsn,
        }
        for argument, value in numbers.items():
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise fail("PSK-0009", f"{argument} must be a number, not {type(value).__name__}.")
        if where is not None:
            # The same checks as for WHERE of SUBSCRIBE: no access outside the database.
            where = parse_condition(where, programs=self._engine.settings.security.allow_programs).sql(dialect="spark")
        target: Any = name_or_select
        if self._engine.catalog.get(name_or_select) is None and len(name_or_select.split()) > 1:
            programs = self._engine.settings.security.allow_programs
            statements = parse_script(name_or_select, programs=programs)
            statement = statements[0] if len(statements) == 1 else None
            if not isinstance(statement, st.Select):
                raise fail("PSK-1001", "Only a name or a SELECT can be subscribed to.")
            target = statement.query
        options = SubscribeOptions(
            snapshot=snapshot,
            as_of=as_of,
            up_to=up_to,
            where=where,
            envelope=envelope,  # type: ignore[arg-type]
            progress=progress,
            policy=policy,
            buffer_bytes=buffer_bytes,
            buffer_messages=buffer_messages,
            as_of_lsn=as_of_lsn,
            up_to_lsn=up_to_lsn,
            name=name,
        )
        return subscribe(self._engine, target, options, on_change, on_error)

    async def subscribe_async(self, name_or_select: str, **options: Any) -> AsyncIterator[Change]:
        """`async for change in await db.subscribe_async(…)`."""
        subscription = await asyncio.to_thread(lambda: self.subscribe(name_or_select, **options))
        return _Async(subscription)

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
        self._engine.check_open()
        return [asdict(c) for c in self._engine.catalog.checkpoints]

    # Insight

    def status(self) -> list[ObjectStatus]:
        """The state of every object, also when the JVM has exited."""
        if self._engine.lifecycle.state is not State.FAULTED:
            self._engine.check_open()
        return status(self._engine)

    def metrics(self) -> dict[str, ObjectStatus]:
        """The result of `status`, by name."""
        return {s.name: s for s in self.status()}

    def subscriptions(self) -> list[SubscriptionFigures]:
        """Every open subscription with its position and what it has been sent."""
        self._engine.check_open()
        return [s.figures for s in self._engine.hub.subscriptions()]

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

    def register_callable(self, name: str, function: Callable[..., object]) -> None:
        """Registers a function for `INTO PYTHON (callable = 'name')` sinks."""
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


class _Async:
    """A subscription for `async for`."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def __aiter__(self) -> AsyncIterator[Change]:
        return self

    async def __anext__(self) -> Change:
        try:
            while True:
                change = await asyncio.to_thread(self._subscription.next, 0.5)
                if change is not None:
                    return change
                if self._subscription.closed:
                    raise StopAsyncIteration
        except StopIteration:
            raise StopAsyncIteration from None
        except asyncio.CancelledError:
            self._subscription.cancel()
            raise

    def cancel(self) -> None:
        self._subscription.cancel()
