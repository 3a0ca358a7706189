"""The lifecycle of the process's Spark: a JVM that is started, used by many threads, and replaced when it dies."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from penstock.config import Settings
from penstock.errors import PenstockError, fail
from penstock.spark.calls import end_calls
from penstock.spark.classes import ClassArchive
from penstock.spark.compilation import write_directives
from penstock.spark.configuration import LOG4J, environment, kernel_jar, spark_conf
from penstock.spark.context import check_free, close_context, forget_context, forget_modules, open_context
from penstock.spark.gateway import Gateway, connect, prepare_launch
from penstock.spark.kernel import Kernel
from penstock.spark.process import LOG, JvmProcess
from penstock.spark.scratch import Scratch, sweep

_logger = logging.getLogger(__name__)

_GRACE_S = 2.0
"""How long the JVM may take to exit with the process. Stopping the Spark context takes some tenths of a second."""

_END_S = 10.0
"""A killed process that still exists after this time is waiting for a disk."""

Watcher = Callable[[PenstockError], None]


class Phase(Enum):
    """The lifecycle of the process's Spark."""

    ABSENT = "absent"
    STARTING = "starting"
    RUNNING = "running"
    DEAD = "dead"
    OVER = "over"


_NEXT: dict[Phase, frozenset[Phase]] = {
    Phase.ABSENT: frozenset({Phase.STARTING, Phase.OVER}),
    # A failed start leaves nothing behind.
    Phase.STARTING: frozenset({Phase.RUNNING, Phase.ABSENT, Phase.OVER}),
    Phase.RUNNING: frozenset({Phase.DEAD, Phase.OVER}),
    Phase.DEAD: frozenset({Phase.STARTING, Phase.OVER}),
    # The process is exiting.
    Phase.OVER: frozenset(),
}


@dataclass(frozen=True)
class Running:
    """A JVM with Spark, and its resources. After its exit every call through them raises PSK-7005."""

    session: SparkSession
    kernel: Kernel
    gateway: Gateway
    process: JvmProcess
    scratch: Scratch
    settings: Settings
    classes: ClassArchive | None
    announced: threading.Event = field(default_factory=threading.Event)
    """Set when every call in progress has been notified of its exit."""
    warming: threading.Event = field(default_factory=threading.Event)
    """Set when a warm-up has started."""

    def usable(self) -> bool:
        """Whether the JVM is alive, and its Spark context was not stopped through PySpark."""
        return self.process.end() is None and self.session.sparkContext._jsc is not None


class Spark:
    """The Spark of this process. Thread-safe."""

    def __init__(self) -> None:
        # Held during a start. Code that must not wait for a start takes `_state`, which is only held briefly.
        self._starting = threading.Lock()
        self._state = threading.Lock()
        self._phase = Phase.ABSENT
        self._running: Running | None = None
        self._process: JvmProcess | None = None
        self._before: JvmProcess | None = None
        self._owner = 0
        self._watchers: dict[object, Watcher] = {}

    @property
    def phase(self) -> Phase:
        return self._phase

    def _to(self, phase: Phase) -> None:
        if phase not in _NEXT[self._phase]:
            raise fail("PSK-0006", f"A Spark that is {self._phase.value} cannot become {phase.value}.")
        self._phase = phase

    def running(self) -> Running:
        """The running Spark; raises PSK-7005 if it has exited."""
        running = self._running
        if running is None:
            raise self.end() or fail("PSK-8001", "Spark is not running.")
        end = running.process.end()
        if end is not None:
            raise end
        return running

    def end(self, soon: bool = False) -> PenstockError | None:
        """Why the JVM exited; None while one runs, and if none has run. `soon` waits briefly for the exit to be detected."""
        if self._phase is Phase.OVER:
            return fail("PSK-7005", "Spark's JVM exited: this process is exiting.")
        running = self._running
        process = running.process if running is not None else self._before
        if process is None:
            return None
        return process.end_soon() if soon else process.end()

    # Starting

    def start(self, settings: Settings) -> Running:
        """The running Spark; starts one with these settings if there is none, or if it has exited."""
        with self._starting:
            running = self._running
            if running is not None and running.usable():
                if settings.spark.master != running.settings.spark.master:
                    raise fail(
                        "PSK-0008",
                        f"This process already runs Spark on {running.settings.spark.master}; a database on"
                        f" {settings.spark.master} cannot share it.",
                        hint="Use the same master, or another process.",
                    )
                return running
            self._clear(running)
            started = self._launch(settings)
            started.process.when_ended(lambda: self._died(started))
            return started

    def _clear(self, ended: Running | None) -> None:
        """Cleans up after a Spark that is no longer usable."""
        if ended is not None:
            ended.process.stop(0)
            # So that it cannot end calls of its successor.
            if not ended.announced.wait(_END_S):
                raise fail("PSK-0007", "Spark's last JVM does not exit.", hint=f"Kill process {ended.process.pid}.")
            forget_context(ended.gateway, ended.session.sparkContext)
            ended.scratch.remove()
        with self._state:
            if self._phase is Phase.RUNNING:
                # Its watching thread has not reported it yet.
                self._to(Phase.DEAD)
            self._to(Phase.STARTING)
            self._running = None
            if ended is not None:
                self._before = ended.process

    def _launch(self, settings: Settings) -> Running:
        """Starts a JVM, connects to it, and creates a Spark context in it. A failure at any point undoes everything."""
        with ExitStack() as undo:
            undo.callback(self._not_started)
            check_free()
            process: JvmProcess | None = None
            try:
                classes = ClassArchive(kernel_jar()) if settings.spark.class_archive else None
                scratch = Scratch("spark")
                undo.callback(scratch.remove)
                undo.callback(forget_modules, scratch.path)
                (scratch.path / "log4j2.properties").write_text(LOG4J)
                write_directives(scratch.path)
                conf = spark_conf(settings, scratch.path, classes.options if classes else "")
                launch = prepare_launch(
                    conf, scratch, environment(settings, scratch.path), remember=settings.spark.class_archive
                )
                command = launch.command()
                undo.callback(launch.forget)
                process = JvmProcess(command.words, scratch, command.variables)
                undo.callback(process.stop, 0)
                self._owner, self._process = os.getpid(), process
                sweep()
                gateway = connect(process, scratch)
                undo.callback(gateway.abandon)
                undo.callback(forget_context, gateway)
                kernel = Kernel(gateway.jvm)
                kernel.Preload.begin()
                session = open_context(gateway)
                process.started()
                launch.keep(process.pid)
            except Exception as error:
                if isinstance(error, PenstockError) and error.code not in ("PSK-7005", "PSK-0010"):
                    raise
                raise fail("PSK-0007", f"Spark could not be started: {_reason(process, error)}") from error
            started = Running(session, kernel, gateway, process, scratch, settings, classes)
            with self._state:
                self._to(Phase.RUNNING)
                self._running = started
            undo.pop_all()
        return started

    def _not_started(self) -> None:
        with self._state:
            if self._phase is Phase.STARTING:
                self._to(Phase.ABSENT)

    # Ending

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        key = object()
        with self._state:
            self._watchers[key] = watcher

        def unwatch() -> None:
            with self._state:
                self._watchers.pop(key, None)

        return unwatch

    def _died(self, ended: Running) -> None:
        """Called once for each JVM that exits, on a separate thread."""
        why = _end_of(ended.process)
        end_calls(why)
        ended.announced.set()
        with self._state:
            if self._phase is Phase.OVER:
                return
            if self._running is ended and self._phase is Phase.RUNNING:
                self._to(Phase.DEAD)
            watchers = [*self._watchers.values()]
        for watcher in watchers:
            try:
                watcher(why())
            except Exception:
                # Notify the others too. This watcher's database raises PSK-7005 at its next call to the JVM.
                _logger.exception("a watcher of Spark's JVM failed")
        ended.gateway.abandon()
        close_context(ended.session.sparkContext)
        forget_modules(ended.scratch.path)
        ended.scratch.clear(keep={LOG})

    def exit(self) -> None:
        """Stops the JVM when the process exits, and leaves nothing in the temporary folder."""
        if os.getpid() != self._owner:
            # A forked child has the state of its parent, but not its JVM.
            return
        with self._state:
            starting = self._phase is Phase.STARTING
            self._to(Phase.OVER)
        running, process = self._running, self._process
        if process is not None:
            process.stop(0 if starting else _GRACE_S)
        if running is not None:
            running.scratch.remove()


def _end_of(process: JvmProcess) -> Callable[[], PenstockError]:
    def end() -> PenstockError:
        why = process.end()
        assert why is not None
        return why

    return end


def _reason(process: JvmProcess | None, error: Exception) -> str:
    """Why Spark did not start: the JVM's last output if it exited, Java's own message, or the error on this side."""
    if process is not None and process.end_soon() is not None:
        return process.last_words() or str(error)
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.toString())
    return str(error)
