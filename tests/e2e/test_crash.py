"""A database that is killed in the middle of its work: nothing is lost and nothing doubled, in any view, follower or sink. `make test-crash` kills it many more times."""

from __future__ import annotations

from pathlib import Path

from tests.crash.harness import Harness
from tests.crash.pipeline import TABLES
from tests.effort import times
from tests.postgres import PostgresServer


def test_every_life_finds_what_an_uninterrupted_run_would_have(tmp_path: Path, postgres: PostgresServer) -> None:
    postgres.execute(*TABLES)
    said: list[str] = []
    harness = Harness(tmp_path, postgres, seed=16, say=said.append)
    harness.run(times(3), steps=("epoch.recorded", "jvm.committed", "checkpoint.written"))
    assert harness.made > 0, said
