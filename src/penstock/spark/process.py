"""The JVM as a process: starting it, waiting for its exit, stopping it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from weakref import WeakSet

from penstock.errors import PenstockError, fail
from penstock.spark.scratch import Scratch

LOG = "spark.log"

HEAP_EXIT = "-XX:+ExitOnOutOfMemoryError"
"""A JVM that is out of memory answers some calls and not others; one that exits is detected."""

CONTEXT_STOPPED = 86
"""The exit code of a JVM whose Spark context was stopped (`EndWithContext`)."""

_TAIL_BYTES = 16_384
_TAIL_LINES = 3
_OUT_OF_MEMORY = re.compile(r"java\.lang\.OutOfMemoryError(?:: [^\n]*\w)?")

_STACK = re.compile(r"\s+(at |\.\.\. )")

_VERDICT_S = 1.5
"""A connection breaks shortly before the exit of the process is detected."""


_running: WeakSet[JvmProcess] = WeakSet()


def _forked() -> None:
    """A child has the standard input of the JVM too: the JVM would not see that this process has ended."""
    for process in [*_running]:
        process._close_input()


os.register_at_fork(after_in_child=_forked)


class JvmProcess:
    """A running JVM. It exits when its standard input closes, so it does not outlive this process."""

    def __init__(self, command: Sequence[str], scratch: Scratch, environment: Mapping[str, str]) -> None:
        self.log = scratch.path / LOG
        self._ended = threading.Event()
        self._stopping = False
        self._greeting = 0
        self._why = ""
        self._hint = ""
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=(scratch.lock,),
                # A process group of its own: Ctrl-C goes to the terminal's group, but Python decides what it means for the JVM.
                process_group=0,
            )
        _running.add(self)
        threading.Thread(target=self._wait, name="penstock-jvm", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _wait(self) -> None:
        code = self._process.wait()
        self._close_input()
        self._explain(code)
        self._ended.set()

    def _close_input(self) -> None:
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def _explain(self, code: int) -> None:
        memory = _OUT_OF_MEMORY.findall(self._tail())
        hint = f"db.start() starts a new one and recovers the database. Spark's log: {self.log}."
        if self._stopping:
            why = "this process stopped it"
        elif memory:
            why = memory[-1]
            hint = f"Give it more memory with the setting spark.heap. {hint}"
        elif code == -signal.SIGKILL:
            why = "it was killed by SIGKILL, possibly because the system ran out of memory"
        elif code == CONTEXT_STOPPED:
            why = "its Spark context was stopped"
        elif code < 0 or code > 128:
            # After a signal that Java handles, it exits with the code that a shell would report.
            why = f"it was terminated by signal {-code if code < 0 else code - 128}"
        else:
            why = f"exit code {code}"
        last = self.last_words()
        said = f" Its log ends with: {last}" if last and not memory and not self._stopping else ""
        self._why = f"Spark's JVM exited: {why}.{said}"
        self._hint = hint

    def started(self) -> None:
        """Discards the output so far, which the JVM writes at every start and which explains nothing."""
        self._greeting = self.log.stat().st_size

    def last_words(self) -> str:
        """The last lines of the JVM's output."""
        said = [line for line in self._tail().splitlines() if not _STACK.match(line)]
        return " ".join(said[-_TAIL_LINES:])

    def _tail(self) -> str:
        with suppress(OSError), self.log.open("rb") as log:
            log.seek(max(self._greeting, log.seek(0, 2) - _TAIL_BYTES))
            return log.read().decode(errors="replace").strip()
        return ""

    def end(self) -> PenstockError | None:
        """Why the JVM exited: a new PSK-7005 at each call. None while it runs."""
        return fail("PSK-7005", self._why, hint=self._hint) if self._ended.is_set() else None

    def end_soon(self) -> PenstockError | None:
        """The same for a caller whose connection broke: it waits briefly for the exit to be detected."""
        self._ended.wait(_VERDICT_S)
        return self.end()

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Calls `callback` once, on a separate thread, when the process has exited for any reason."""

        def wait() -> None:
            self._ended.wait()
            callback()

        threading.Thread(target=wait, name="penstock-jvm-end", daemon=True).start()

    def stop(self, grace_s: float) -> None:
        """Asks the JVM to exit, and kills it after `grace_s`. Returns when it has exited."""
        self._stopping = True
        self._close_input()
        if not self._ended.wait(grace_s):
            self._process.kill()
            # A process that cannot be killed now (it waits for a disk) is left to the system.
            self._ended.wait(_VERDICT_S)
