"""Room for recursion.

Trees of statements and plans are walked by functions that call themselves, ours and those of the SQL library. What is too deep for the
stack that it arrives on is done again, on a thread with a large one.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from penstock.errors import fail

T = TypeVar("T")

# Python counts calls, the machine bytes: with this ratio the count is reached first, and gives an error instead of a crash.
_STACK_BYTES = 256 << 20
_CALLS = 60_000

_lock = threading.Lock()
_local = threading.local()
_working = 0
_usual = 0


def with_room(call: Callable[[], T]) -> T:
    """The result of `call`, which must be such that it can be begun again. PSK-1020 if there is no room for it anywhere."""
    try:
        return call()
    except Exception as error:
        if getattr(_local, "large", False) or not _ran_out(error):
            raise
    return _on_large_stack(call)


def _ran_out(error: BaseException | None) -> bool:
    """Whether an error comes from one of recursion: the SQL library makes errors of its own of some."""
    while error is not None:
        if isinstance(error, RecursionError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _on_large_stack(call: Callable[[], T]) -> T:
    done: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:
        _local.large = True
        _raise_limit()
        try:
            done.append(call())
        except BaseException as error:
            deep = fail("PSK-1020", "the statement is nested too deeply") if _ran_out(error) else None
            failed.append(deep or error)
        finally:
            _lower_limit()

    thread = threading.Thread(target=work, name="penstock-deep", daemon=True)
    with _lock:
        before = threading.stack_size(_STACK_BYTES)
        try:
            thread.start()
        except RuntimeError:
            raise fail("PSK-1020", "the statement is nested too deeply for the memory of this process") from None
        finally:
            threading.stack_size(before)
    thread.join()
    if failed:
        raise failed[0]
    return done[0]


def _raise_limit() -> None:
    """The limit is the process's. A thread with an ordinary stack does not come near it unless it recurses without end."""
    global _working, _usual
    with _lock:
        if not _working:
            _usual = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_usual, _CALLS))
        _working += 1


def _lower_limit() -> None:
    global _working
    with _lock:
        _working -= 1
        if not _working:
            sys.setrecursionlimit(_usual)
