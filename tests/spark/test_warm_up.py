"""The warm-up of a JVM leaves nothing behind, and stays out of the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.conftest import Opener

from penstock.api import warmup
from penstock.api.warmup import WarmUp


def test_it_drives_epochs_until_its_budget_is_used_and_touches_nothing(
    opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = opener(tmp_path / "data")
    db.execute("CREATE SOURCE s (k BIGINT)")
    monkeypatch.setattr(warmup, "scratch_folder", lambda: tmp_path)
    monkeypatch.setattr(warmup, "IDLE_S", 0.0)
    head = db._engine.log.head
    # By its own clock, so that it ends after as many steps whatever else the JVM does.
    spent = iter(range(100))
    monkeypatch.setattr(warmup, "cpu_ms", lambda: next(spent))
    assert WarmUp(db._engine, 20).run() > 5
    assert next(spent) < 40
    assert db._engine.log.head == head
    assert [o.name for o in db.status()] == ["s"]
    assert [p.name for p in tmp_path.iterdir()] == ["data"]


def test_it_waits_while_the_database_is_busy_and_ends_with_it(opener: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    db = opener()
    db.execute("CREATE TABLE t (k BIGINT)")
    warming = WarmUp(db._engine, 1 << 40)
    waited = 0

    def busy(_: float) -> None:
        nonlocal waited
        waited += 1
        if waited < 5:
            db.insert("t", [{"k": waited}])
        else:
            db.close()

    monkeypatch.setattr(warmup, "sleep", busy)
    assert warming.run() == 0
    assert waited == 5
