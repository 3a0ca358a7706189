"""Starts one child at a time, and ends all of it when it takes too long."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.child import RESULT
from benchmarks.work import Figures

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Outcome:
    """Figures, or why there are none."""

    figures: Figures
    error: str | None = None


def run(python: str, work: str, competitor: str, *, quick: bool, timeout_s: float) -> Outcome:
    command = [python, "-m", "benchmarks.child", work, competitor, *(["--quick"] if quick else [])]
    with tempfile.TemporaryFile() as noise:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=noise, stdin=subprocess.DEVNULL, start_new_session=True
        )
        try:
            out, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return Outcome({}, f"not finished after {timeout_s:.0f} s")
        finally:
            # The JVM is in the child's session; it must be gone before the next competitor starts.
            _end(process)
        for line in out.decode().splitlines():
            if line.startswith(RESULT):
                return Outcome(json.loads(line.removeprefix(RESULT)))
        noise.seek(0)
        return Outcome({}, _reason(noise.read().decode(errors="replace")))


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _reason(noise: str) -> str:
    """The last line of a traceback, which says what went wrong."""
    lines = [line.strip() for line in noise.strip().splitlines() if line.strip()]
    errors = [
        line
        for line in lines
        if ": " in line and line.split(":")[0].rpartition(".")[2].endswith(("Error", "Exception"))
    ]
    return (errors or lines or ["no output"])[-1][:300]
