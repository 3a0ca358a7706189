"""Tasks in other processes than the driver: they get the kernel, the right Python and the secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 400


def test_streams_views_and_joins_on_a_local_cluster(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.clustered", str(tmp_path / "data"), "local-cluster[2,1,1024]"],
        capture_output=True, text=True, timeout=TIMEOUT_S, cwd=ROOT, env={**ENVIRONMENT, "TMPDIR": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert json.loads(done.stdout) == {
        "even": [["a", 0], ["a", 2], ["a", 4], ["a", 6], ["a", 8]],
        "sums": [["a", 5, 20], ["b", 5, 25]],
        "named": [["Ada", 20], ["Bob", 25]],
        "doubled": sorted(["ab"[n % 2], 2 * n] for n in range(10)),
        "batch": [["a", [0, 1, 2]], ["b", [0, 1, 2]]],
        # Two, and the driver.
        "executors": 3,
        "errors": [],
    }
    assert not (Path(pyspark.__path__[0]) / "work").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["data"]
