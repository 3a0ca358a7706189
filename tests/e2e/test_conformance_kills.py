"""Conformance cases with `restart`: their process is killed there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.effort import times
from tests.spark.conformance.cases import load
from tests.spark.conformance.killed import killed

RESTARTING = [c.id for c in load() if any("restart" in s for s in c.steps)]


# The first has a subscriber that goes on; the others are run by `make test-long`.
@pytest.mark.parametrize("case", RESTARTING[: times(len(RESTARTING), quick=1)])
def test_a_case_with_a_killed_process(case: str, tmp_path: Path) -> None:
    assert killed(case, tmp_path) == 1
