"""Single key presses of a terminal."""

from __future__ import annotations

import os
import select
import sys
from types import TracebackType
from typing import Self

_NAMES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\r": "enter",
    "\n": "enter",
    "\x1b": "back",
    "\x7f": "back",
    "\x08": "back",
}


class Keys:
    """Reads keys as they are pressed, without Enter and without showing them, until the end of the block. Where standard input is no terminal there are none."""

    def __init__(self) -> None:
        self._fd: int | None = None
        self._before: list[object] | None = None

    def __enter__(self) -> Self:
        if sys.stdin.isatty():
            import termios
            import tty

            self._fd = sys.stdin.fileno()
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd is not None and self._before is not None:
            import termios

            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)  # type: ignore[arg-type]

    def wait(self, seconds: float) -> str | None:
        """The next key, by its name if it has one; None after some seconds."""
        if self._fd is None:
            select.select([], [], [], seconds)
            return None
        ready, _, _ = select.select([self._fd], [], [], seconds)
        return named(os.read(self._fd, 8).decode(errors="replace")) if ready else None


def named(pressed: str) -> str:
    return _NAMES.get(pressed, pressed)
