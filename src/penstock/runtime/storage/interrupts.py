"""Sections in which Ctrl-C is deferred."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def uninterrupted(strike: Callable[[], None] | None = None) -> Iterator[None]:
    """Defers Ctrl-C to the end of the block, so that the block runs completely or not at all.

    Only the main thread is ever interrupted. The block must end within a bound: waits for a reader, a job or a lock that is held for long belong
    outside of it, unless `strike`, which is called when Ctrl-C is pressed, ends the wait.
    """
    before = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if before is None:
        # Not the main thread, or a handler that Python did not install and could not restore.
        yield
        return
    struck = False

    def hold(number: int, frame: FrameType | None) -> None:
        nonlocal struck
        struck = True
        if strike is not None:
            strike()

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if struck:
            # For the previous disposition: a handler, or termination.
            signal.raise_signal(signal.SIGINT)
