"""Stack space for recursion.

Penstock and the SQL library walk statements and plans recursively. A call that overflows its stack is retried on a thread with a larger one.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from penstock.errors import fail

T = TypeVar("T")

# Python limits calls, the machine limits bytes. With this ratio the call limit comes first, which is an error instead of a crash.
_STACK_BYTES = 256 << 20
_CALLS = 60_000

_lock = threading.Lock()
_local = threading.local()
_working = 0
_usual = 0


def with_room(call: Callable[[], T]) -> T:
    """Returns the result of `call`, which must be safe to retry. Raises PSK-1020 if it overflows the large stack too."""
    try:
        return call()
    except Exception as error:
        if getattr(_local, "large", False) or not _ran_out(error):
            raise
    finally:
        if _usual and not getattr(_local, "large", False):
            _lower_limit(0)
    return _on_large_stack(call)


def _ran_out(error: BaseException | None) -> bool:
    """Whether a RecursionError caused the error; the SQL library wraps some."""
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
            _lower_limit(1)

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
    """Raises the recursion limit, for the whole process. On an ordinary stack, only infinite recursion comes close to it."""
    global _working, _usual
    with _lock:
        if not _working:
            _usual = _usual or sys.getrecursionlimit()
            sys.setrecursionlimit(max(_usual, _CALLS))
        _working += 1


def _lower_limit(done: int) -> None:
    """Lowers the limit, unless a thread is deeper than the usual limit: Python would abort the process.

    That thread, or the next statement, lowers it.
    """
    global _working, _usual
    with _lock:
        _working -= done
        if _usual and not _working and not any(map(_is_deep, sys._current_frames().values())):
            sys.setrecursionlimit(_usual)
            _usual = 0


def _is_deep(frame: FrameType | None) -> bool:
    for _ in range(_usual):
        if frame is None:
            return False
        frame = frame.f_back
    return True
