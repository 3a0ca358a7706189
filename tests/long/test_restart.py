"""Many more kills than the end-to-end tier can afford."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.test_restart import killed_and_compared


@pytest.mark.parametrize("seed", range(20))
def test_kill_at_random_moments(tmp_path: Path, seed: int) -> None:
    assert killed_and_compared(tmp_path / "data", seed, rounds=10) >= 10, "each life inserts a row at least"
