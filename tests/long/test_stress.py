"""Everything at once for minutes, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = int(os.environ.get("STRESS_SECONDS", "180"))


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_or_stuck_under_stress(tmp_path: Path, seed: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.stressing", str(tmp_path / "data"), str(SECONDS), str(seed)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS + 900,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-8000:]}"
    assert done.stdout.endswith("sound")
