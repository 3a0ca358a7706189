"""A thread that runs calls in order and is never interrupted by Ctrl-C."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from penstock.errors import fail

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class Outcome(Generic[T]):
    """The future result of a call.

    A KeyboardInterrupt can hit the waiting thread inside any Python function, even inside `threading.Condition`, and leave the
    condition locked for the worker. A bare lock has no such window.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call
        self._done = threading.Lock()
        self._done.acquire()
        self._value: T | None = None
        self._error: BaseException | None = None

    def result(self) -> T:
        """Waits for the call; returns its value or raises its error."""
        with self._done:
            pass
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def carry_out(self) -> BaseException | None:
        """Runs the call on the worker's thread; returns its error, if any."""
        call, self._call = self._call, None
        assert call is not None
        try:
            self._value = call()
        except BaseException as why:
            self._error = why
        self._done.release()
        return self._error


class Worker:
    """Runs calls in the order of submission. The thread starts with the first one.

    Python delivers signals to the main thread only, so an interrupt ends the caller's wait, not the call.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # SimpleQueue.put() is reentrant, so finalizers may call it.
        self._calls: queue.SimpleQueue[tuple[Outcome[Any], bool] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def run(self, call: Callable[[], T]) -> T:
        """Submits a call and waits for its result."""
        return self.submit(call).result()

    def submit(self, call: Callable[[], T]) -> Outcome[T]:
        """Submits a call. PSK-0004 after `close`."""
        outcome = Outcome(call)
        with self._lock:
            if self._closed:
                raise fail("PSK-0004", "The database is closed.")
            self._start()
            self._calls.put((outcome, False))
        return outcome

    def start(self) -> None:
        """Starts the thread, so that `leave` does not have to."""
        with self._lock:
            if not self._closed:
                self._start()

    def leave(self, call: Callable[[], object]) -> None:
        """Submits a call without taking a lock; its error is logged. For finalizers, after `start`."""
        self._calls.put((Outcome(call), True))

    def close(self, timeout: float) -> bool:
        """Runs the submitted calls and ends the thread; False if it has not ended within `timeout` seconds."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._calls.put(None)
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout)
        return not thread.is_alive()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (job := self._calls.get()) is not None:
            outcome, left = job
            error = outcome.carry_out()
            if left and error is not None:
                _logger.error("a call on the thread %s failed", self._name, exc_info=error)
            # Do not keep the call's objects alive until the next call.
            del job, outcome, error
