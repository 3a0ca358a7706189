"""Where Ctrl-C may strike, and where it has to wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Holds back Ctrl-C until the end of the block, so that the block happens as a whole or not at all.

    Only the main thread is ever interrupted. The block must end within a bound: waits for a reader, a job or a lock that is held for long belong
    outside of it.
    """
    before = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if before is None:
        # Not the main thread, or a handler that Python did not install and could not put back.
        yield
        return
    struck = False

    def hold(number: int, frame: FrameType | None) -> None:
        nonlocal struck
        struck = True

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if struck:
            # To whatever was in place before: a handler, or the end of the process.
            signal.raise_signal(signal.SIGINT)
