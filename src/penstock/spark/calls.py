"""Interruptible JVM calls.

An unread reply desynchronises that thread's connection. Slow calls run on separate threads; the caller waits for them
in Python, where Ctrl-C and the death of the JVM can interrupt it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from penstock.errors import fail

T = TypeVar("T")

_NAME = "penstock-call"
_LOOK_S = 0.2
_BRIEF_S = 5.0


class _Threads:
    """A pool that grows to the number of concurrent calls. A call that never returns does not keep the process from exiting."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._answers: set[Future[Any]] = set()

    def submit(self, answer: Future[T], call: Callable[[], T]) -> None:
        with self._lock:
            self._answers.add(answer)
            if self._idle:
                self._idle -= 1
            else:
                threading.Thread(target=self._run, name=_NAME, daemon=True).start()
        self._calls.put((answer, call))

    def _run(self) -> None:
        while True:
            answer, call = self._calls.get()
            if answer.set_running_or_notify_cancel():
                self._answer(answer, call)
            with self._lock:
                self._answers.discard(answer)
                self._idle += 1
            del answer, call

    def _answer(self, answer: Future[Any], call: Callable[[], Any]) -> None:
        # `end_calls` may have set a result already.
        with suppress(InvalidStateError):
            try:
                result = call()
            except BaseException as error:
                answer.set_exception(error)
            else:
                answer.set_result(result)

    def end(self, error: Callable[[], BaseException]) -> None:
        with self._lock:
            answers = [a for a in self._answers if a.running()]
        for answer in answers:
            with suppress(InvalidStateError):
                answer.set_exception(error())


_threads = _Threads()


def interruptible(
    call: Callable[[], T], abandon: Callable[[], object] | None = None, *, within: float | None = None
) -> T:
    """Runs `call` on another thread and waits. If the wait is interrupted, the result is dropped, and `abandon` is called until `call` ends.

    Raises TimeoutError if there is no answer within so many seconds; that ends the wait in the same way."""
    until = None if within is None else time.monotonic() + within
    if threading.current_thread().name == _NAME:
        return call()
    answer: Future[T] = Future()
    try:
        _threads.submit(answer, call)
        while not answer.done():
            # Bounded, because a signal that arrives just before a thread starts to wait does not wake it.
            wait((answer,), timeout=_LOOK_S)
            if until is not None and time.monotonic() >= until and not answer.done():
                raise TimeoutError
        return answer.result()
    except BaseException:
        # A call that has not started is cancelled.
        if not answer.cancel() and abandon is not None and not answer.done():
            _threads.submit(Future(), lambda: _until_done(answer, abandon))
        raise


def _until_done(answer: Future[Any], abandon: Callable[[], object]) -> None:
    """Repeats `abandon`, because the work to abandon may not have started yet."""
    while not answer.done():
        abandon()
        wait((answer,), timeout=_LOOK_S)


class _Silence:
    """Whether the JVM has left a brief call unanswered."""

    def __init__(self) -> None:
        self.ends: threading.Event | None = None

    @property
    def lasts(self) -> bool:
        ends = self.ends
        return ends is not None and not ends.is_set()


_silence = _Silence()


def brief(call: Callable[[], T], within: float = _BRIEF_S) -> T:
    """The answer to a call that takes no time. Raises PSK-0010 if the JVM, which may be stopped, or be out of memory, does not answer; at once until it answers again."""
    answered = threading.Event()

    def ask() -> T:
        try:
            return call()
        finally:
            answered.set()

    if not _silence.lasts:
        with suppress(TimeoutError):
            return interruptible(ask, within=within)
        _silence.ends = answered
    raise fail("PSK-0010", "Spark's JVM does not answer.")


def end_calls(error: Callable[[], BaseException]) -> None:
    """Makes every call in progress raise its own error, even if its thread never returns. Called when the JVM exits."""
    _silence.ends = None
    _threads.end(error)
