"""Calls into the JVM that can be left.

An answer that is not read leaves the connection of its thread out of step. Calls that take time are made by threads of their own; the
caller waits for them in Python, where it can be interrupted. A short call that Ctrl-C strikes all the same takes its connection with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import wraps
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_NAME = "penstock-call"
_LOOK_S = 0.2


class _Threads:
    """As many threads as there are calls at a time; they wait for more. A call that never returns does not keep the process from ending."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    def submit(self, answer: Future[T], call: Callable[[], T]) -> None:
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                threading.Thread(target=self._run, name=_NAME, daemon=True).start()
        self._calls.put((answer, call))

    def _run(self) -> None:
        while True:
            answer, call = self._calls.get()
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(call())
                except BaseException as error:
                    answer.set_exception(error)
            del answer, call
            with self._lock:
                self._idle += 1


_threads = _Threads()


def interruptible(call: Callable[[], T], abandon: Callable[[], object] | None = None) -> T:
    """Runs `call` on another thread and waits. If the wait is interrupted the result is dropped, and `abandon` is called until `call` ends."""
    if threading.current_thread().name == _NAME:
        return call()
    answer: Future[T] = Future()
    try:
        _threads.submit(answer, call)
        while not answer.done():
            # not for ever: a signal that comes just before a thread begins to wait does not wake it
            wait((answer,), timeout=_LOOK_S)
        return answer.result()
    except BaseException:
        # one that has not begun never will
        if not answer.cancel() and abandon is not None and not answer.done():
            _threads.submit(Future(), lambda: _until_done(answer, abandon))
        raise


def _until_done(answer: Future[Any], abandon: Callable[[], object]) -> None:
    """What is to be abandoned may not have begun yet."""
    while not answer.done():
        abandon()
        wait((answer,), timeout=_LOOK_S)


def drop_interrupted(client: Any) -> None:
    """Makes a gateway's client close the connection of a call that Ctrl-C strikes, so that the next call gets an answer of its own."""
    send = client.send_command

    @wraps(send)
    def guarded(*arguments: Any, **options: Any) -> Any:
        try:
            return send(*arguments, **options)
        except Exception:
            raise
        except BaseException:
            connection = client.get_thread_connection()
            if connection is not None:
                connection.close()
            raise

    client.send_command = guarded
