"""Crash points: named steps at which a test kills the process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

VARIABLE = "PENSTOCK_CRASH_AT"
"""The environment variable that names the step: `sink.decided`, or `sink.decided:3` for the third time."""


def _armed(wanted: str) -> Callable[[str], None]:
    step, _, times = wanted.partition(":")
    left = int(times or 1)

    def reached(name: str) -> None:
        nonlocal left
        if name == step:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    return reached


def _unarmed(name: str) -> None:
    """Does nothing."""


crash_point: Callable[[str], None] = _armed(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else _unarmed
"""Marks a step. The process is killed there if the environment says so; otherwise it does nothing."""
