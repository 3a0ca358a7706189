"""Readers continue after `kill -9` of the database."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.e2e.command import ENVIRONMENT, TIMEOUT_S

RUN = [sys.executable, "-m", "tests.e2e.resuming"]


def test_readers_continue_after_the_lsn_that_they_have_seen(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    with subprocess.Popen([*RUN, folder], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as first:
        assert first.stdout is not None
        seen = json.loads(first.stdout.readline())["seen"]
        os.kill(first.pid, signal.SIGKILL)
    done = subprocess.run(
        [*RUN, folder, "resume"],
        input=json.dumps(seen) + "\n",
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=TIMEOUT_S,
        check=True,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 3
    for one in found:
        assert one["have"] == one["want"], one
        assert one["gaps"] == 0
    table, view, query = (one["kinds"] for one in found)
    assert set(table) == {"changes"} and set(view) == {"changes"}
    # The query of a subscription ends with its process, and its history with it.
    assert query[0] == "resync"
