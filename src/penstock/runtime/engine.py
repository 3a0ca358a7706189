"""The engine: one open database. It composes storage, jobs and connectors, and owns their lifecycle."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar
from weakref import WeakSet

from penstock.catalog.objects import Column, Kind, ObjectInfo, Role
from penstock.catalog.store import Catalog
from penstock.config import Settings, changed
from penstock.connect import Access, Sink
from penstock.disk import FolderLock, make_folder, of_parent
from penstock.errors import PenstockError, fail
from penstock.log import Log, Part
from penstock.runtime.checkpoints import Checkpoints
from penstock.runtime.connect.delivery import Delivery
from penstock.runtime.connect.intake import Intake
from penstock.runtime.connect.lookups import FedLookup
from penstock.runtime.connect.ondemand import OnDemand
from penstock.runtime.connect.replica import Replica
from penstock.runtime.connect.sinks import SinkRunner
from penstock.runtime.copies import Copies
from penstock.runtime.jobs.compute import Compute
from penstock.runtime.jobs.defaults import default_values
from penstock.runtime.jobs.jobs import QUERIES, Jobs
from penstock.runtime.jobs.versions import finish_switches, taken
from penstock.runtime.lifecycle import STEPS, Lifecycle, State
from penstock.runtime.logs import Reports
from penstock.runtime.storage.interrupts import uninterrupted
from penstock.runtime.storage.storage import FED, Storage
from penstock.runtime.storage.writes import TableWriter
from penstock.runtime.ticker import Ticker
from penstock.runtime.tracing import Tracing
from penstock.runtime.uploads import Uploads
from penstock.serve.hub import Hub
from penstock.serve.store import ViewStore
from penstock.spark.compile import UNIT_OBJECT
from penstock.spark.session import keep_classes, watch

T = TypeVar("T")

_AGAIN = "When the reason is gone, db.start() opens the files again; so does the next open."

_logger = logging.getLogger(__name__)


@dataclass
class HiddenQuery:
    """The query of one or several subscriptions."""

    info: ObjectInfo
    readers: int = 0


class Watched(Protocol):
    """Something with figures of its own, which are shown under its label."""

    @property
    def label(self) -> str: ...

    def figures(self) -> Mapping[str, float]: ...


class Engine:
    """Thread-safe. `ddl` serialises changes of the catalogue and of the lifecycle; reads and commits do not wait for them."""

    def __init__(
        self,
        folder: Path | None,
        settings: Settings,
        progress: Callable[[str], None] | None = None,
        *,
        silent: bool = False,
    ) -> None:
        say = progress or (lambda _: None)
        self.lifecycle = Lifecycle("The pipeline", State.CREATED, STEPS)
        self.fault: PenstockError | None = None
        self.exchange: PenstockError | None = None
        """Why no statement is accepted: the files of the database are being exchanged."""
        self._afterwards: Callable[[], None] = _nothing
        """What follows when the exchanged files are open."""
        self._silent = silent
        """Whether nobody is to hear of the JVM's end through it: the program does not know of this database."""
        self.temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-")) if folder is None else folder.absolute()
        self.tracing = Tracing(settings.logging.tracing)
        make_folder(self.folder)
        self.ddl = threading.RLock()
        self._reports: Reports | None = None
        self.sinks: dict[int, SinkRunner] = {}
        self.intakes: dict[int, Intake] = {}
        self.lookups: dict[int, FedLookup] = {}
        self.copies = Copies()
        self.hidden: dict[str, HiddenQuery] = {}
        """The queries of subscriptions, by what they mean. Changed under `ddl`."""
        self.refusals: dict[int, PenstockError] = {}
        """Sources and sinks whose connector could not be started, and why."""
        self._functions: dict[str, tuple[Callable[..., object], str]] = {}
        self.watched: WeakSet[Watched] = WeakSet()
        """Whatever runs on this engine and has figures of its own."""
        self._paused: set[int] = set()
        """Queries that their owners have paused, in whatever JVM."""
        self.opened_at = time.time()
        self._owner = os.getpid()
        self._lock = FolderLock(self.folder)
        self._lock.acquire()
        with ExitStack() as undo:
            undo.callback(self._let_go)
            self._reports = Reports(self.folder, settings.logging)
            say("opening the log")
            self.storage = Storage(self.folder, settings)
            undo.callback(self.storage.close)
            self.uploads = Uploads.of(self.storage, temporary=self.temporary)
            self._forget_unowned()
            say("starting Spark")
            self._connect()
            undo.callback(lambda: self.compute.close())
            undo.callback(lambda: self._unwatch())
            say("recovering")
            self.recovery_ms = 0
            """How long it took to recover the objects when the database was opened."""
            self._recover_all()
            self.ticker = Ticker(self)
            undo.pop_all()
        # The last process may have ended before it uploaded its last checkpoint.
        self.uploads.wake()

    def _recover_all(self) -> None:
        begin = time.monotonic()
        for info in self.catalog.objects():
            self._recover(info)
        finish_switches(self.storage)
        self.writer = TableWriter(self.storage)
        self.checkpoints = Checkpoints(self)
        self.recovery_ms = int((time.monotonic() - begin) * 1000)

    def _connect(self) -> None:
        """Creates the JVM side of the database, possibly in a new JVM. Watches the JVM before it requests a session, so that no exit is missed."""
        self._unwatch = watch(self._died)
        try:
            self.compute = Compute(self.storage)
        except BaseException:
            self._unwatch()
            raise
        self.jobs = Jobs(
            self.storage, self.compute, self.ddl, self.lookups, lambda: self.running, self._paused, self.tracing
        )
        self.storage.backpressure.readers = self.jobs.readers

    def _let_go(self) -> None:
        if self._reports is not None:
            self._reports.close()
        self._lock.release()
        if self.temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    # Parts

    @property
    def settings(self) -> Settings:
        return self.storage.settings

    @property
    def catalog(self) -> Catalog:
        return self.storage.catalog

    @property
    def log(self) -> Log:
        return self.storage.log

    @property
    def store(self) -> ViewStore:
        return self.storage.store

    @property
    def hub(self) -> Hub:
        return self.storage.hub

    # Recovery

    def _forget_unowned(self) -> None:
        """Drops objects without an owner: the queries of subscriptions ended with their process, and a crash may have
        left parts of an object that is not in the catalogue."""
        gone = [o for o in self.catalog.objects() if self._unowned(o)]
        if gone:
            self.catalog.remove(*(o.id for o in gone))
        known = {o.id for o in self.catalog.objects()}
        for object_id in self.log.object_ids():
            if object_id not in known and object_id != UNIT_OBJECT:
                self.log.forget(object_id)
        self.storage.layout.sweep(known, self.catalog.hosted)
        if self.log.head == 0:
            self.log.append([Part(object_id=UNIT_OBJECT)])

    def _unowned(self, info: ObjectInfo) -> bool:
        if info.role is Role.SUBSCRIPTION or (info.role is Role.VERSION and not taken(info)):
            return True
        if info.owner_id is None:
            return False
        owner = self.catalog.by_id(info.owner_id) if self.catalog.has_id(info.owner_id) else None
        return owner is None or self._unowned(owner)

    def _recover(self, info: ObjectInfo) -> None:
        """Attaches a stored object. If its defaults are no longer valid, it accepts no rows; other objects are still attached."""
        try:
            self.attach(info)
        except PenstockError as error:
            self.storage.attach(info)
            self.storage.closed[info.id] = self.refusals[info.id] = error

    def attach(self, info: ObjectInfo) -> None:
        """Sets up an object in this process. A named query and a function need nothing."""
        if info.kind in (Kind.NAMED_QUERY, Kind.FUNCTION):
            return
        defaults = self.defaults(info.columns) if info.kind in FED else {}
        self.storage.attach(info, defaults)
        if info.kind is Kind.LOOKUP and info.connector is not None:
            make = OnDemand if info.on_demand else Replica
            self.lookups[info.id] = make(self.storage, info, lambda: self.access)

    def defaults(self, columns: Iterable[Column]) -> dict[str, object]:
        programs = self.settings.security.allow_programs
        return default_values(self.compute.batch, self.catalog, columns, programs=programs)

    # Lifecycle

    def start(self) -> None:
        """Starts every query, sink and connector. One that cannot be started reports it in its status; the others still start.

        If the JVM exited, starts a new one first.
        """
        if os.getpid() != self._owner:
            raise of_parent(self.folder, self._owner)
        with self.ddl:
            if self.lifecycle.state in (State.RUNNING, State.STARTING):
                return
            if not self.storage.is_open:
                self._open_again()
            if self.lifecycle.state is State.FAULTED:
                self._revive()
            try:
                self.lifecycle.to(State.STARTING)
                self._start_all()
            except BaseException:
                with uninterrupted():
                    if self.lifecycle.state is not State.CLOSED:
                        self._stop_all()
                        self.lifecycle.attempt(State.STOPPED)
                raise
            # The JVM may have exited by now.
            self.lifecycle.attempt(State.RUNNING)
        self.check_open()

    def _start_all(self) -> None:
        for lookup in self.lookups.values():
            lookup.start()
        self.jobs.start_all()
        for info in self.catalog.objects(Kind.SINK):
            self.attempt(info, self.start_sink)
        for info in self.catalog.objects(Kind.SOURCE):
            self.attempt(info, self.start_connector)

    def attempt(self, info: ObjectInfo, start: Callable[[ObjectInfo], None]) -> None:
        """Starts something for an object. If that fails, its status says why, and the next start of the pipeline retries it."""
        try:
            start(info)
            self.refusals.pop(info.id, None)
        except Exception as why:
            _logger.error("%s could not be started: %s", info.name, why, exc_info=why)
            coded = (
                why if isinstance(why, PenstockError) else fail("PSK-8001", f"{info.name}: {type(why).__name__}: {why}")
            )
            self.refusals[info.id] = coded

    @contextmanager
    def exchanging(self, why: PenstockError) -> Iterator[None]:
        """A block that exchanges the files of the database: queries, sinks and connectors are stopped, and no commit is accepted. Afterwards everything is as it was, over what the files are then.

        The caller holds `ddl`. Raises PSK-5016 for a sink that has not returned from a call. If the files cannot be opened again, every call says why until `start` can open them.
        """
        running = self.lifecycle.state is State.RUNNING
        try:
            self.ticker.stop()
            # Ctrl-C while queries drain is raised at the end of this.
            self.stop()
            self.exchange = why
            self.storage.freeze(why)
            self.storage.totals.save()
            if self.sinks:
                names = ", ".join(s.name for s in self.sinks.values())
                raise fail("PSK-5016", f"A call of {names} has not returned.")
            yield
        finally:
            with uninterrupted():
                if self.storage.is_open:
                    self._exchanged()
                    if running:
                        self.start()

    def _exchanged(self) -> None:
        self.exchange = None
        self.storage.thaw()
        self.ticker = Ticker(self)

    def reopen(self, change: Callable[[], None], afterwards: Callable[[], None]) -> None:
        """Within `exchanging`: exchanges the files, recovers from them, and calls `afterwards`. If `change` raises, everything is recovered as well."""
        with uninterrupted():
            for lookup in self.lookups.values():
                lookup.close()
            self.lookups.clear()
            self.refusals.clear()
            self._unwatch()
            self.compute.close()
            self._unwatch = _nothing
            try:
                self.storage.reopen(change)
            except BaseException as why:
                if self.storage.is_open:
                    self._recover_files()
                else:
                    self._afterwards = afterwards
                    coded = why if isinstance(why, PenstockError) else fail("PSK-8001", f"{type(why).__name__}: {why}")
                    self.exchange = fail(coded.code, coded.detail, hint=_AGAIN)
                raise
            self._recover_files()
            afterwards()

    def _open_again(self) -> None:
        with uninterrupted():
            self.storage.reopen(_nothing)
            self._recover_files()
            self._exchanged()
            self._afterwards()

    def _recover_files(self) -> None:
        self._forget_unowned()
        self._connect()
        for name, (function, returns) in self._functions.items():
            self.compute.batch.register(name, function, returns)
        self._recover_all()

    def _revive(self) -> None:
        """Replaces the JVM that exited; durable data is not affected."""
        self._stop_all()
        self._unwatch()
        self.compute.close()
        self._connect()
        for name, (function, returns) in self._functions.items():
            self.compute.batch.register(name, function, returns)
        self.fault = None

    def _died(self, error: PenstockError) -> None:
        """Called by another thread when the JVM exits."""
        self.fault = error
        if self.lifecycle.attempt(State.FAULTED):
            _logger.log(logging.DEBUG if self._silent else logging.ERROR, "%s", error)
            # The JVM may exit while the database is being opened.
            if hasattr(self, "jobs"):
                self.jobs.abandon(error)
            with self.storage.commits:
                self.storage.commits.notify_all()

    def stop(self) -> None:
        """Stops every job after its current epoch; rows can still be inserted and are processed after the next start."""
        if os.getpid() != self._owner:
            raise of_parent(self.folder, self._owner)
        with self.ddl:
            if self.lifecycle.state is not State.RUNNING:
                return
            with uninterrupted():
                self.lifecycle.to(State.SHUTTING_DOWN)
                self._stop_all()
                self.lifecycle.attempt(State.STOPPED)

    def _stop_all(self) -> None:
        """Stops everything, within `engine.shutdown_timeout_ms`. What has not stopped by then is reported."""
        deadline = time.monotonic() + self.settings.engine.shutdown_timeout_ms / 1000
        for sink in self.sinks.values():
            sink.ask_to_stop()
        stopping = [self._stopped(f"connector {i}", intake.stop) for i, intake in self._named(self.intakes)]
        self.intakes.clear()
        stopping += [self._stopped(f"lookup table {i}", lookup.stop) for i, lookup in self._named(self.lookups)]
        for object_id, sink in list(self.sinks.items()):
            if sink.stop(deadline):
                self.sinks.pop(object_id, None)
        left = [f"sink {s.name}" for s in self.sinks.values()]
        left += [what for what, thread in stopping if not _joined(thread, deadline)]
        left += self.jobs.stop_all(deadline)
        if left:
            _logger.warning("not stopped within engine.shutdown_timeout_ms: %s", ", ".join(left))

    def _named(self, by_id: Mapping[int, T]) -> list[tuple[str, T]]:
        """With the names of their objects."""
        return [(self.catalog.by_id(i).name if self.catalog.has_id(i) else str(i), o) for i, o in by_id.items()]

    def _stopped(self, what: str, stop: Callable[[], None]) -> tuple[str, threading.Thread]:
        """Stops something on a thread of its own."""

        def quietly() -> None:
            try:
                stop()
            except Exception as error:
                _logger.warning("%s was not stopped: %s", what, error, exc_info=error)

        thread = threading.Thread(target=quietly, name=f"penstock-stop-{what}", daemon=True)
        thread.start()
        return what, thread

    def close(self) -> None:
        """Stops everything and releases the folder, whatever the state of the JVM and the disk. Calling it again does nothing, nor does calling it in a forked child."""
        if os.getpid() != self._owner:
            return
        with self.checkpoints.alone, self.ddl, uninterrupted(), ExitStack() as last:
            if self.lifecycle.state is State.CLOSED:
                return
            faulted = self.lifecycle.state is State.FAULTED
            self.lifecycle.to(State.CLOSED)
            self.storage.alignment.close()
            self.storage.backpressure.close()
            last.callback(self._let_go)
            last.callback(self.compute.close)
            last.callback(self.storage.close)
            last.callback(self._unwatch)
            self.ticker.stop()
            self._stop_all()
            for lookup in self.lookups.values():
                lookup.close()
            if not self.temporary and self.storage.is_open:
                self._save()
            self.uploads.close(self.settings.engine.shutdown_timeout_ms / 1000)
        if not faulted and self.settings.spark.class_archive:
            with suppress(PenstockError):
                keep_classes()

    def _save(self) -> None:
        checkpoint = partial(self.checkpoints.make_if_moved, ends=True)
        for save in (self.storage.save_contents, checkpoint, self.storage.totals.save):
            try:
                save()
            except PenstockError as error:
                # The log has all data; only the next open takes longer.
                _logger.warning("not everything was written at the end: %s", error)

    @property
    def running(self) -> bool:
        return self.lifecycle.state in (State.RUNNING, State.STARTING)

    def check_open(self) -> None:
        """Raises PSK-0004 after `close`, PSK-7005 after the JVM exited, PSK-0005 in a forked child."""
        if os.getpid() != self._owner:
            raise of_parent(self.folder, self._owner)
        state = self.lifecycle.state
        if state is State.CLOSED:
            raise fail("PSK-0004", "The database is closed.")
        if self.exchange is not None:
            raise self.exchange
        if state is State.FAULTED and self.fault is not None:
            raise self.fault

    def change_setting(self, key: str, value: str) -> None:
        """Changes one setting until the database is closed; it applies to whatever starts from now on."""
        self.storage.settings = changed(self.settings, key, value)

    # Connectors

    @property
    def access(self) -> Access:
        """What connectors may access, with the current values of variables in their options: secrets are never stored."""
        return Access.of(self.settings, self.folder)

    def start_sink(self, info: ObjectInfo, opened: tuple[Sink, Delivery] | None = None) -> None:
        before = self.sinks.get(info.id)
        if before is not None and not before.stopped:
            # Two at a time could deliver the same epoch.
            raise fail("PSK-5016", f"Sink {info.name} cannot start: an earlier call of it has not returned.")
        feeding = self.catalog.by_id(info.depends_on[0])
        self.sinks[info.id] = SinkRunner(
            self.storage, info, lambda: self.access, lambda: self.jobs.uncomputed([feeding]), opened
        )

    def start_connector(self, info: ObjectInfo) -> None:
        """Starts the connector that feeds a source, if it has one."""
        if info.connector is not None:
            self.intakes[info.id] = Intake(self.storage, info, self.access)

    # Progress

    def flush(self, timeout: float | None = None) -> None:
        """Returns when every query and every sink has processed all earlier commits. Raises an error that names those that cannot."""
        self.wait(self.log.head, timeout)

    def wait(self, lsn: int, timeout: float | None = None) -> None:
        self.check_open()
        deadline = None if timeout is None else time.monotonic() + timeout
        queries = self.catalog.objects(*QUERIES)
        if queries and not self.running:
            names = ", ".join(o.name for o in queries if not o.hidden)
            raise fail(
                "PSK-7006", f"The pipeline is stopped, so {names} cannot catch up.", hint="START PIPELINE starts it."
            )
        failed: dict[str, PenstockError] = {}
        for info in queries:
            self._settle(info, lsn, deadline, timeout, failed)
        for runner in list(self.sinks.values()):
            try:
                if not runner.settle(deadline):
                    raise fail("PSK-0010", f"Sink {runner.name} has not caught up within {timeout} s.")
            except PenstockError as error:
                if error.code == "PSK-0010":
                    raise
                failed[runner.name] = error
        if failed:
            self.check_open()
            raise _unsettled(failed)

    def _settle(
        self,
        info: ObjectInfo,
        lsn: int,
        deadline: float | None,
        timeout: float | None,
        failed: dict[str, PenstockError],
    ) -> None:
        name = self.owner(info).name
        try:
            done = self.jobs.settle(info, lsn, deadline)
        except PenstockError as error:
            if self.catalog.has_id(info.id):
                failed[name] = error
            return
        if not done:
            raise fail("PSK-0010", f"{name} has not caught up within {timeout} s.")

    def owner(self, info: ObjectInfo) -> ObjectInfo:
        """The user-visible object that a hidden one belongs to."""
        while info.owner_id is not None and self.catalog.has_id(info.owner_id):
            info = self.catalog.by_id(info.owner_id)
        return info

    def housekeeping_error(self, object_id: int) -> str | None:
        """The current error of periodic work: processing-time watermarks, retention."""
        return self.ticker.error(object_id)

    @property
    def functions(self) -> frozenset[str]:
        """The names of registered Python functions, in lower case."""
        return frozenset(n.lower() for n in self._functions)

    def register_function(self, name: str, function: Callable[..., object], returns: str) -> None:
        """Makes a Python function callable in SQL, in queries created from now on."""
        self.compute.batch.register(name, function, returns)
        self._functions[name] = (function, returns)


def _nothing() -> None:
    """Does nothing."""


def _joined(thread: threading.Thread, deadline: float) -> bool:
    thread.join(max(0.0, deadline - time.monotonic()))
    return not thread.is_alive()


def _unsettled(failed: dict[str, PenstockError]) -> PenstockError:
    lost = next((e for e in failed.values() if e.code == "PSK-7005"), None)
    if lost is not None:
        return lost  # All queries fail for this one reason.
    named = "; ".join(f"{name}: {error.detail}" for name, error in failed.items())
    only = next(iter(failed.values())) if len(failed) == 1 else None
    hint = only.hint if only is not None and only.hint else "SHOW QUERIES says more; RESTART … tries a query again."
    return fail("PSK-7006", f"Not everything can catch up: {named}", hint=hint)


__all__ = ["QUERIES", "Engine", "HiddenQuery"]
