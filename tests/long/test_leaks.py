"""Threads, files, memory and disk are at the end where they were near the beginning."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

ROOM = {
    "python_threads": 2, "python_files": 8, "python_kb": 65_536, "jvm_threads": 16, "jvm_files": 32, "jvm_heap_kb": 32_768,
    "metaspace_kb": 32_768, "folder_files": 60, "folder_kb": 8_192, "log_kb": 4_096,
}  # fmt: skip
"""How much more there may be of each."""

STATE_FILES = 600
"""Files of state come and go: each of the two partitions has the change logs since its last snapshot, at most 300."""


@pytest.mark.parametrize(
    ("kind", "count"), [("objects", 500), ("subscribers", 10_000), ("plans", 10_000), ("day", 8_640)]
)
def test_nothing_is_left_behind(tmp_path: Path, kind: str, count: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.leaking", str(tmp_path / "data"), kind, str(count)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    early, late = (json.loads(line) for line in done.stdout.splitlines())
    room = ROOM | ({"folder_files": ROOM["folder_files"] + STATE_FILES} if kind == "day" else {})
    more = {k: late[k] - early[k] for k in room if late[k] - early[k] > room[k]}
    assert not more, (early, late)
