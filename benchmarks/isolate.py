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

import psutil

from benchmarks.child import FAILURE, RESULT
from benchmarks.work import Figures

ROOT = Path(__file__).resolve().parent.parent
FAREWELL_S = 10.0


@dataclass(frozen=True)
class Outcome:
    """Figures, and why some or all are missing."""

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
        except BaseException as error:
            # The JVM is in the child's session and goes with it.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                return Outcome({}, f"not finished after {timeout_s:.0f} s")
            raise
        _wait_for_session(process.pid)
        failure = None
        for line in out.decode().splitlines():
            if line.startswith(FAILURE):
                failure = json.loads(line.removeprefix(FAILURE))
            if line.startswith(RESULT):
                return Outcome(json.loads(line.removeprefix(RESULT)), failure)
        noise.seek(0)
        return Outcome({}, _reason(noise.read().decode(errors="replace")))


def _wait_for_session(leader: int) -> None:
    """What the child has left behind, its JVM above all, must be gone before the next competitor starts."""
    left = [p for p in psutil.process_iter() if _session(p.pid) == leader]
    _, alive = psutil.wait_procs(left, timeout=FAREWELL_S)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _reason(noise: str) -> str:
    """The last line of a traceback, which says what went wrong."""
    lines = [line.strip() for line in noise.strip().splitlines() if line.strip()]
    errors = [
        line
        for line in lines
        if ": " in line and line.split(":")[0].rpartition(".")[2].endswith(("Error", "Exception"))
    ]
    return (errors or lines or ["no output"])[-1][:300]
