"""How a command handles Ctrl-C and termination signals.

An exception raised by a signal handler can interrupt any two steps, even in cleanup code. So one is raised at most once, never while a
command waits or closes, and not again until `cancellable()` allows it. Otherwise the handler only sets a flag, which waiting code checks.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
TERMINATED = 143

_STDERR = 2
_SHOW_CURSOR = b"\x1b[?25h"


# how often waiting code checks the flag
LOOK_S = 0.1


class Note:
    """A flag that a signal handler can set. `threading.Event` is not safe there: the interrupted code may hold its lock."""

    def __init__(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Return when it is set or after `timeout` seconds. The result says whether it is set."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._set:
            left = LOOK_S if end is None else min(LOOK_S, end - time.monotonic())
            if left <= 0:
                break
            time.sleep(left)
        return self._set


class Interrupts:
    """The signal handling of this process. Before `install()`, Python's own handlers are active."""

    def __init__(self) -> None:
        self._noted = Note()
        self._throws = False
        self._ends = False
        self._unheeded = 0
        self._closing = False
        self.terminated = False

    def install(self) -> None:
        """Install the handlers, which only works in the main thread. The first signal raises."""
        if threading.current_thread() is threading.main_thread():
            self._throws = True
            signal.signal(signal.SIGINT, self._pressed)
            signal.signal(signal.SIGTERM, self._asked_to_end)
            signal.signal(signal.SIGHUP, self._asked_to_end)

    @contextmanager
    def cancellable(self) -> Iterator[None]:
        """Within the block, Ctrl-C raises KeyboardInterrupt and a termination signal raises SystemExit. A pending one raises at once."""
        self._unheeded = 0
        self._throws = True
        try:
            if self._noted.is_set():
                self._throw()
            yield
        finally:
            self._throws = False

    @contextmanager
    def at_prompt(self) -> Iterator[None]:
        """Within the block, the input line handles Ctrl-C as a key; a termination signal raises SystemExit."""
        self._ends = True
        try:
            if self.terminated:
                raise SystemExit(TERMINATED)
            yield
        finally:
            self._ends = False
            self._noted.clear()
            self._unheeded = 0

    @contextmanager
    def awaited(self) -> Iterator[Note]:
        """Within the block, nothing is raised: Ctrl-C or a termination signal sets the flag, which is cleared when the block ends."""
        before, self._throws = self._throws, False
        try:
            yield self._noted
        finally:
            self._noted.clear()
            self._unheeded = 0
            self._throws = before

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Within the block, the first Ctrl-C prints a message and the second kills the process."""
        self._throws = False
        self._unheeded = 0
        self._closing = True
        try:
            yield
        finally:
            self._closing = False

    def _pressed(self, signum: int, frame: FrameType | None) -> None:
        self._noted.set()
        if self._throws:
            self._throw()
        self._unheeded += 1
        if self._unheeded > 1:
            _leave_at_once()
        if self._closing:
            _say("\nClosing; press Ctrl-C again to quit at once.\n")

    def _asked_to_end(self, signum: int, frame: FrameType | None) -> None:
        self.terminated = True
        self._noted.set()
        if self._throws or self._ends:
            self._ends = False
            self._throw()

    def _throw(self) -> None:
        self._throws = False
        self._noted.clear()
        raise SystemExit(TERMINATED) if self.terminated else KeyboardInterrupt


def _say(text: str) -> None:
    # the handler may interrupt a print, so it must not use a buffered file
    os.write(_STDERR, text.encode())


def _leave_at_once() -> None:
    if os.isatty(_STDERR):
        os.write(_STDERR, _SHOW_CURSOR)
    os._exit(INTERRUPTED)


interrupts = Interrupts()
