"""A command in a pseudo-terminal, driven as a person does: type, look, wait."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>])")


class Terminal:
    """One process on a terminal of its own. What it prints is kept without colours and cursor movements."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        timeout: float,
        columns: int = 120,
        lines: int = 40,
    ) -> None:
        self._timeout = timeout
        self._code: int | None = None
        self._unread = ""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            # prompt_toolkit asks the terminal for the cursor's place; nobody would answer here
            os.execvpe(command[0], [*command], {**environment, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"})
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def expect(self, pattern: str) -> str:
        """Wait until the pattern has been printed; everything up to its end, which is then done with."""
        deadline = time.monotonic() + self._timeout
        while (found := re.search(pattern, self._unread)) is None:
            if time.monotonic() > deadline:
                raise AssertionError(f"{pattern!r} did not come; seen: {self._unread!r}")
            if not self._read(0.2):
                raise AssertionError(f"the process ended before {pattern!r}; seen: {self._unread!r}")
        taken, self._unread = self._unread[: found.end()], self._unread[found.end() :]
        return taken

    def exit_code(self) -> int:
        """Wait for the end of the process."""
        deadline = time.monotonic() + self._timeout
        while self._read(0.2):
            if time.monotonic() > deadline:
                raise AssertionError(f"the process did not end; seen: {self._unread!r}")
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def _read(self, seconds: float) -> bool:
        """Take in what has come; False at the end."""
        ready, _, _ = select.select([self._fd], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self._fd, 65536)
        except OSError:
            # Linux says so when the last process has left the terminal
            return False
        self._unread += _ESCAPES.sub("", data.decode(errors="replace"))
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._fd)
