"""Calls into the JVM that can be left.

An answer that is not read leaves the connection of its thread out of step, so Ctrl-C must never strike inside a call. Calls that take
time are made by threads of their own; the caller waits for them in Python, where it can be interrupted.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import current_thread
from typing import TypeVar

T = TypeVar("T")

_NAME = "penstock-call"
_pool = ThreadPoolExecutor(max_workers=32, thread_name_prefix=_NAME)


def interruptible(call: Callable[[], T]) -> T:
    """Runs `call` on another thread and waits; if the wait is interrupted, the call runs on and its result is dropped."""
    if current_thread().name.startswith(_NAME):
        return call()
    return _pool.submit(call).result()
