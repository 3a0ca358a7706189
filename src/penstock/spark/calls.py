"""Calls into the JVM that can be left.

An answer that is not read leaves the connection of its thread out of step. Calls that take time are made by threads of their own; the
caller waits for them in Python, where it can be interrupted. A short call that Ctrl-C strikes all the same takes its connection with it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from threading import current_thread
from typing import Any, TypeVar

T = TypeVar("T")

_NAME = "penstock-call"
_pool = ThreadPoolExecutor(max_workers=32, thread_name_prefix=_NAME)


def interruptible(call: Callable[[], T], abandon: Callable[[], object] | None = None) -> T:
    """Runs `call` on another thread and waits. If the wait is interrupted, `abandon` is called on a third one, and the result is dropped."""
    if current_thread().name.startswith(_NAME):
        return call()
    answer = _pool.submit(call)
    try:
        return answer.result()
    except BaseException:
        if abandon is not None and not answer.done():
            _pool.submit(abandon)
        raise


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
