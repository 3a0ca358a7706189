from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.disk import FolderLock
from penstock.errors import PenstockError

HOLD = """
import sys
from pathlib import Path
from penstock.disk import FolderLock
FolderLock(Path(sys.argv[1])).acquire()
sys.stdout.write("held\\n"); sys.stdout.flush()
sys.stdin.read()
"""


def test_a_second_holder_is_refused(tmp_path: Path) -> None:
    first, second = FolderLock(tmp_path / "db"), FolderLock(tmp_path / "db")
    first.acquire()
    assert first.held
    for lock in (first, second):
        with pytest.raises(PenstockError) as error:
            lock.acquire()
        assert error.value.code == "PSK-0005"
    first.release()
    first.release()
    second.acquire()
    second.release()


def test_a_process_that_dies_gives_its_claim_up(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        lock = FolderLock(tmp_path)
        with pytest.raises(PenstockError, match=f"process {holder.pid}"):
            lock.acquire()
        holder.kill()
        holder.wait()
        lock.acquire()
        lock.release()
