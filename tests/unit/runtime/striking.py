"""Ctrl-C at a chosen line of Penstock."""

from __future__ import annotations

import contextlib
import linecache
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_OWN = ("/penstock/runtime/", "/penstock/catalog/store.py", contextlib.__file__)


def struck(work: Callable[[], object], line: int) -> tuple[bool, int]:
    """Runs `work` and sends SIGINT just before the given line of those that it runs in this thread; at most once.

    Whether it ended with KeyboardInterrupt, and how many lines it had run by then.
    """
    count = 0

    def enter(frame: FrameType, event: str, arg: Any) -> Any:
        if not any(own in frame.f_code.co_filename for own in _OWN):
            return None
        seen: set[int] = set()

        def each(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal count
            again = frame.f_lineno in seen
            seen.add(frame.f_lineno)
            # The end of a block is traced as its first line once more. Python looks for signals before it, and not there.
            if event == "line" and not (again and _is_with(frame)):
                count += 1
                if count == line:
                    signal.raise_signal(signal.SIGINT)
            return each

        return each

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.settrace(enter)
    try:
        work()
    except KeyboardInterrupt:
        return True, count
    finally:
        sys.settrace(None)
        signal.signal(signal.SIGINT, before)
    return False, count


def _is_with(frame: FrameType) -> bool:
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with ")


def at_every_line(work: Callable[[], object], step: int = 1) -> Iterator[bool]:
    """Repeats `work`, struck at every `step`-th of its lines, one after the other; whether it was interrupted."""
    line = 1
    while True:
        interrupted, lines = struck(work, line)
        yield interrupted
        if lines < line:
            return
        line += step
