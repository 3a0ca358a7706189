"""`penstock logs`: the reports of a database, without opening it."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from penstock.cli.failure import FAILED
from penstock.runtime.logs import log_file

_LEVELS = ("debug", "info", "warning", "error", "critical")
_LOOK_S = 0.2


def show_logs(folder: str, *, count: int, level: str, follow: bool, raw: bool) -> int:
    """Prints the last reports of at least a level and, with `follow`, those that come, until Ctrl-C."""
    path = log_file(Path(folder))
    if not path.exists():
        sys.stderr.write(f"{path} does not exist. Open the database with the setting logging.file = true.\n")
        return FAILED
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in deque(_wanted(file, level), maxlen=count):
            _print(line, raw)
        while follow:
            sys.stdout.flush()
            time.sleep(_LOOK_S)
            for line in _wanted(file, level):
                _print(line, raw)
            if _replaced(path, file):
                return show_logs(folder, count=count, level=level, follow=True, raw=raw)
    return 0


def _replaced(path: Path, file: TextIO) -> bool:
    """Whether a new file has been begun."""
    return path.exists() and path.stat().st_ino != os.fstat(file.fileno()).st_ino


def _wanted(file: TextIO, level: str) -> Iterator[str]:
    least = _LEVELS.index(level)
    while line := file.readline():
        if not line.endswith("\n"):
            return  # It is being written.
        found = _parsed(line).get("level", "error")
        if found not in _LEVELS or _LEVELS.index(found) >= least:
            yield line


def _parsed(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _print(line: str, raw: bool) -> None:
    facts = _parsed(line)
    if raw or not facts:
        sys.stdout.write(line)
        return
    sys.stdout.write(f"{facts['time']} {facts['level']:<8} {facts['logger']}: {facts['message']}\n")
    if "trace" in facts:
        sys.stdout.write("".join(f"    {t}\n" for t in str(facts["trace"]).splitlines()))
