"""A producer that is faster than the engine, for a moment; `make test-long` does it for an hour."""

from __future__ import annotations

from pathlib import Path

from tests import flood
from tests.spark.conftest import CONFIG, Opener


def test_a_producer_that_is_faster_than_the_engine_fills_nothing(opener: Opener, tmp_path: Path) -> None:
    db = opener(tmp_path / "db", config=CONFIG | flood.CONFIG)
    flood.check(db, flood.flood(db, tmp_path / "db", 3))
