"""Limits of state, of the time of an epoch, of the time of a checkpoint and of that of a shutdown."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.engines import database
from tests.unit.runtime.storing import eventually
from tests.unit.runtime.test_snapshots import forgotten

from penstock.errors import PenstockError, fail
from penstock.runtime.jobs.limits import StateBudget, StateGuard, StateLimits, state_limits
from penstock.runtime.jobs.pace import Pace
from penstock.runtime.storage.checkpoints import CheckpointStore
from penstock.spark.operators import StateFigures


def kept(*sizes: int) -> list[StateFigures]:
    return [StateFigures(1, size) for size in sizes]


def test_the_limits_of_a_query_are_sizes() -> None:
    options = {"max_state_bytes": "64mb", "max_operator_state_bytes": "1000"}
    assert state_limits(options) == StateLimits(64 * 1024 * 1024, 1000) and state_limits({}) == StateLimits(0, 0)
    with pytest.raises(PenstockError, match=r"PSK-1011.*max_operator_state_bytes = 'much'"):
        state_limits({"max_operator_state_bytes": "much"})


def test_a_query_fails_at_its_limit_or_at_that_of_one_operator(caplog: pytest.LogCaptureFixture) -> None:
    guard = StateGuard("v", StateLimits(query=100, operator=70), None)
    guard.check(kept(40, 30))
    assert guard.warning(kept(40, 30)) is None
    for _ in range(2):
        guard.check(kept(60, 25))
    assert caplog.text.count("85 % of its max_state_bytes") == 1
    with pytest.raises(PenstockError, match=r"PSK-4002.*v keeps 100 bytes of state; max_state_bytes allows 100"):
        guard.check(kept(50, 50))
    with pytest.raises(PenstockError, match=r"PSK-4002.*Operator 1 of v keeps 70 .*max_operator_state_bytes"):
        guard.check(kept(1, 70))


def test_the_query_that_grows_at_the_limit_of_the_database_fails() -> None:
    budget = StateBudget(100)
    a, b = (StateGuard.of(name, StateLimits(), budget) for name in "ab")
    assert a is not None and b is not None and StateGuard.of("c", StateLimits(), StateBudget(0)) is None
    a.check(kept(60))
    b.check(kept(30))
    # Of two, the one that grows: the other one's state is as large as it was.
    with pytest.raises(PenstockError, match=r"PSK-4002.*together keep 100 bytes of state, 40 of them b"):
        b.check(kept(40))
    a.check(kept(60))
    a.check(kept(99))
    with pytest.raises(PenstockError, match="PSK-4002"):
        a.check(kept(100))
    b.check(kept(40))
    b.forget()
    a.check(kept(50))


def test_an_epoch_reads_less_after_one_that_took_too_long() -> None:
    pace = Pace(1_000_000, 100)
    assert not pace.after(500_000, 100) and (pace.rows, pace.over) == (1_000_000, 0)
    assert pace.after(500_000, 400) and (pace.rows, pace.over) == (125_000, 1)
    assert not pace.after(100_000, 60)
    assert pace.after(100_000, 40) and pace.rows == 250_000
    assert pace.after(250_000, 1_000_000) and (pace.rows, pace.over) == (1000, 2)
    for _ in range(20):
        pace.after(1000, 1)
    assert pace.rows == 1_000_000
    assert not Pace(10, 0).after(10, 1e9)


def test_statements_do_not_wait_for_the_disk_of_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, reached, summed = threading.Event(), threading.Event(), CheckpointStore.sum

    def slow(self: CheckpointStore, *args: Any, **named: Any) -> int:
        reached.set()
        assert gate.wait(10)
        return summed(self, *args, **named)

    with database(tmp_path, monkeypatch) as db:
        db.run("CREATE TABLE t (k BIGINT NOT NULL, PRIMARY KEY (k))")
        db.insert("t", (1,))
        made: list[int] = []
        monkeypatch.setattr(CheckpointStore, "sum", slow)
        other = threading.Thread(target=lambda: made.extend(db.run("CHECKPOINT").column(0).to_pylist()))
        other.start()
        assert reached.wait(10)
        db.run("CREATE TABLE u (k BIGINT)")
        db.run("DROP TABLE t")
        # Nor does the next one by interval.
        db.engine.checkpoints.tick()
        assert not made
        gate.set()
        other.join(10)
        monkeypatch.setattr(CheckpointStore, "sum", summed)
        assert made and db.engine.storage.checkpoints.verify(made[0]).id == made[0]
        db.run(f"RESTORE FROM CHECKPOINT {made[0]}")
        assert db.rows("t") == {(1,): 1} and db.engine.catalog.get("u") is None


def test_checkpoints_that_hold_a_full_log_make_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the log has no room, no query moves; older checkpoints would hold it for ever."""
    with database(tmp_path, monkeypatch) as db:
        db.run("CREATE SOURCE s (k BIGINT); CREATE STREAM alone_o AS SELECT k FROM s")
        db.engine.start()
        checkpoints, storage = db.engine.checkpoints, db.engine.storage
        keep = storage.settings.checkpoint.max_retained

        def positions() -> list[int]:
            with db.engine.checkpoints.alone, db.engine.ddl:
                checkpoints.make_if_moved()
            return [j.lsn for m in checkpoints.kept for j in m.jobs.values()]

        db.insert("s", (1,))
        db.engine.flush()
        assert len(positions()) == 1
        db.insert("s", (2,))
        db.engine.flush()
        first, last = positions()
        assert first < last and positions() == [first, last]
        storage.full = fail("PSK-5013", "The log is too large.")
        for _ in range(keep):
            held = positions()
        assert held == [last] * keep == positions()


def test_a_checkpoint_that_takes_too_long_is_given_up_and_the_next_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database(tmp_path, monkeypatch) as db:
        db.run("CREATE TABLE t (k BIGINT NOT NULL, PRIMARY KEY (k))")
        db.insert("t", (1,))
        store, counts = db.engine.storage.checkpoints, db.engine.storage.totals.database
        db.run("SET checkpoint.timeout_ms = 1")
        summed = CheckpointStore.sum

        def slow(self: CheckpointStore, *args: Any, **named: Any) -> int:
            found = summed(self, *args, **named)
            end = time.monotonic() + 0.003
            eventually(lambda: time.monotonic() > end, "the time")
            return found

        monkeypatch.setattr(CheckpointStore, "sum", slow)
        with pytest.raises(PenstockError, match=r"PSK-6014.*took longer than 0\.0 s: [01] of"):
            db.run("CHECKPOINT")
        assert (counts.completed, counts.failed) == (0, 1) and store.ids() == []
        assert [f.name for f in tmp_path.glob("checkpoints/*")] == []
        db.run("SET checkpoint.timeout_ms = 10000")
        (id,) = db.run("CHECKPOINT").column(0).to_pylist()
        assert store.verify(id).duration_ms >= 3 and (counts.completed, counts.failed) == (1, 1)


def test_a_checkpoint_of_a_log_that_has_lost_a_segment_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with database(tmp_path, monkeypatch) as db:
        db.run("CREATE TABLE t (k BIGINT NOT NULL, PRIMARY KEY (k))")
        db.insert("t", (1,))
        (first,) = db.run("CHECKPOINT").column(0).to_pylist()
        db.insert("t", (2,))
        (segment,) = tmp_path.glob("log/*.seg")
        segment.unlink()
        for sql in ("CHECKPOINT", f"RESTORE FROM CHECKPOINT {first}"):
            with pytest.raises(PenstockError, match=rf"PSK-6001.*{segment.name} is missing: no checkpoint can be made"):
                db.run(sql)
        assert db.engine.storage.checkpoints.ids() == [first] and not list(tmp_path.glob("checkpoints/*.new"))
        db.run(f"RESTORE FROM CHECKPOINT {first} WITH (backup = 'false')")
        assert db.rows("t") == {(1,): 1}
        next(tmp_path.glob("log/*.seg")).unlink()
    # `close` says so, and closes.
    assert "not everything was written at the end" in caplog.text


def test_the_last_checkpoint_with_all_contents_whole_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with database(tmp_path, monkeypatch) as db:
        for name in ("t", "u"):
            db.run(f"CREATE TABLE {name} (k BIGINT NOT NULL, PRIMARY KEY (k))")
            db.insert(name, (1,))
        ids = [db.run("CHECKPOINT").column(0).to_pylist()[0] for _ in range(2)]
        info = db.engine.catalog.get("t")
        assert info is not None
        forgotten(db.engine.storage, db.engine.log.head, info)
        whole = ids[-1]
    db.engine.storage.layout.snapshot(info.id).unlink()

    def kept() -> list[tuple[int, str | None]]:
        shown = db.run("SHOW CHECKPOINTS")
        return list(zip(shown["id"].to_pylist(), shown["damaged"].to_pylist(), strict=True))

    def checkpoint() -> int:
        made: int = db.run("CHECKPOINT").column(0).to_pylist()[0]
        return made

    with database(tmp_path, monkeypatch) as db:
        whole = kept()[-1][0]
        first, second, third = (checkpoint() for _ in range(3))
        assert kept() == [(whole, None), (second, "t"), (third, "t")]
    with database(tmp_path, monkeypatch) as db:
        made = checkpoint()
        assert kept()[0] == (whole, None) and len(kept()) == 3
        db.run(f"RESTORE FROM CHECKPOINT {whole}")
        assert db.rows("t") == {(1,): 1} == db.rows("u")
        # All is whole again: no more of them are kept than otherwise.
        made = [checkpoint() for _ in range(2)]
        assert kept() == [(made[0], None), (made[1], None)]
    assert first < second


def test_ids_go_on_when_all_checkpoints_were_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with database(tmp_path, monkeypatch) as db:
        db.run("CREATE TABLE t (k BIGINT)")
        first = [db.run("CHECKPOINT").column(0).to_pylist()[0] for _ in range(3)]
        db.engine.storage.checkpoints.prune(0)
        assert db.engine.storage.checkpoints.ids() == []
    with database(tmp_path, monkeypatch) as db:
        assert db.run("CHECKPOINT").column(0).to_pylist()[0] > max(first)


def test_a_shutdown_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()
    with database(tmp_path, monkeypatch) as db:
        db.engine.storage.settings = db.engine.settings.model_copy(
            update={"engine": db.engine.settings.engine.model_copy(update={"shutdown_timeout_ms": 50})}
        )
        db.run("CREATE TABLE t (k BIGINT NOT NULL, PRIMARY KEY (k))")
        db.run("CREATE MATERIALIZED VIEW stuck AS SELECT k FROM t")
        db.engine.start()
        db.insert("t", (1,))
        assert db.rows("stuck") == {(1,): 1}
        (kernel,) = db.world.running
        whole = kernel.stop
        monkeypatch.setattr(kernel, "stop", lambda: (gate.wait(10), whole()))
        begun = time.monotonic()
        db.engine.stop()
        assert time.monotonic() - begun < 5
        assert "not stopped within engine.shutdown_timeout_ms: queries on t" in caplog.text
        gate.set()
        eventually(lambda: not db.world.running, "the end")
