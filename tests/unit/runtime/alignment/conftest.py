"""Fixtures of the tests of watermark groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.runtime.engines import Database, database


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks again without a reason. A source is idle soon."""
    monkeypatch.setattr("penstock.runtime.storage.alignment._LOOK_S", 3600.0)
    monkeypatch.setattr("penstock.runtime.ticker._TICK_S", 0.02)


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    with database(tmp_path, monkeypatch) as made:
        yield made
