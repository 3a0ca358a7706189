"""Crash points: named steps at which a test kills the process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

VARIABLE = "PENSTOCK_CRASH_AT"
"""The environment variable that names the step: `sink.decided`, or `sink.decided:3` for the third time."""


class Armed:
    """Kills the process at a step."""

    def __init__(self, wanted: str) -> None:
        self.arm(wanted)

    def arm(self, wanted: str) -> None:
        """Another step, from now on."""
        self._step, _, times = wanted.partition(":")
        self._left = int(times or 1)

    def __call__(self, name: str) -> None:
        if name == self._step:
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)


def _unarmed(name: str) -> None:
    """Does nothing."""


crash_point: Callable[[str], None] = Armed(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else _unarmed
"""Marks a step. The process is killed there if the environment says so; otherwise it does nothing."""
