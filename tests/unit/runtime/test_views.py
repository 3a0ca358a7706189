"""The host of views on an engine without a JVM, whose queries copy rows: who is attached to what, races, refusals, and what is left behind."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.effort import times
from tests.unit.runtime.engines import Database, database

from penstock.errors import PenstockError
from penstock.views import AggregateDelta, PersistentHost, WalTransaction, WalUpdate, compile_plan, snapshot_run
from penstock.views.plan import CompiledPlan

EVENTS = {"events": "id BIGINT, value BIGINT"}
SQL = "SELECT id, value FROM events"


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    with database(tmp_path, monkeypatch) as made:
        made.engine.start()
        yield made


def surface(db: Database) -> Any:
    return SimpleNamespace(_engine=db.engine)


@pytest.fixture
def plan(db: Database) -> CompiledPlan:
    return compile_plan(surface(db), SQL, EVENTS)


@pytest.fixture
def host(db: Database) -> PersistentHost:
    return PersistentHost(surface(db))


def test_a_plan_lives_from_its_first_to_its_last_subscriber(
    db: Database, host: PersistentHost, plan: CompiledPlan
) -> None:
    before = db.state()
    assert host.cached_view("c", 1) is None and host.subscribers("c") is None and host.release("c", 1) == 0
    seeded = host.register_or_seed("c", plan, {"events": [(1, 10), (2, 20), (2, 20)]}, 5, 1)
    assert (sorted(seeded.rows), seeded.lsn) == ([(1, 10), (2, 20), (2, 20)], 5)
    assert host.push_table_diff("c", "events", (3, 30), 1, 6) == [AggregateDelta((3, 30), 6, 1)]
    assert host.push_table_batch("c", [("events", (2, 20), -2), ("events", (4, 40), 1)], 7) == [
        AggregateDelta((2, 20), 7, -2),
        AggregateDelta((4, 40), 7, 1),
    ]
    applied = host.apply_and_fanout("c", [("events", (5, 5), 1), ("events", (5, 5), -1)], 8)
    assert applied == ([], [1])
    late = host.cached_view("c", 2)
    assert late is not None and (sorted(late.rows), late.lsn) == ([(1, 10), (3, 30), (4, 40)], 8)
    again = host.register_or_seed("c", plan, {"events": [(9, 9)]}, 1, 3)
    assert (sorted(again.rows), again.lsn) == (sorted(late.rows), 8)
    assert host.subscribers("c") == [1, 2, 3]
    assert [host.release("c", s) for s in (1, 7, 2, 3)] == [2, 2, 1, 0]
    assert host.apply_and_fanout("c", [], 9) is None and host.push_table_diff("c", "events", (1, 1), 1, 9) == []
    assert db.state() == before


def test_what_cannot_be_applied_is_refused_and_changes_nothing(host: PersistentHost, plan: CompiledPlan) -> None:
    host.register_or_seed("c", plan, {"events": [(1, 10)]}, 5, 1)
    for diffs, lsn, code in (
        ([("events", (1, 10), 1)], 5, "PSK-0009"),
        ([("events", (7, 7), -1)], 6, "PSK-5008"),
        ([("events", (1, 10), -2)], 6, "PSK-5008"),
        ([("other", (1,), 1)], 6, "PSK-1002"),
        ([("events", ("x", 1), 1)], 6, "PSK-5003"),
    ):
        with pytest.raises(PenstockError) as error:
            host.push_table_batch("c", diffs, lsn)
        assert error.value.code == code
    found = host.cached_view("c", 2)
    assert found is not None and found == ([(1, 10)], 5)
    host.close()
    assert host.subscribers("c") is None


def test_a_transaction_over_several_tables_is_one_step(db: Database, host: PersistentHost) -> None:
    tables = {"a": "k BIGINT", "b": "k BIGINT"}
    plan = compile_plan(surface(db), "SELECT k FROM a UNION ALL SELECT k FROM b", tables)
    assert plan.inputs == ("a", "b") and plan.columns == ("k",)
    host.register_or_seed("c", plan, {"a": [(1,)]}, 1, 1)
    updates = [WalUpdate("a", (1,), -1), WalUpdate("b", (1,), 1), WalUpdate("b", (2,), 1)]
    assert host.push_transaction("c", WalTransaction(2, updates)) == [AggregateDelta((2,), 2, 1)]
    host.close()


def test_plans_that_mean_the_same_have_one_canonical_form(db: Database) -> None:
    same = [compile_plan(surface(db), sql, EVENTS).canonical for sql in (SQL, "select e.ID, e.Value from Events e")]
    assert same[0] == same[1] != compile_plan(surface(db), "SELECT id FROM events", EVENTS).canonical
    for sql, code in (
        ("SELECT id FROM nothing", "PSK-1002"),
        ("DROP TABLE t", "PSK-1001"),
        ("SELECT x FROM events", "PSK-1004"),
    ):
        with pytest.raises(PenstockError) as error:
            compile_plan(surface(db), sql, EVENTS)
        assert error.value.code == code


def test_a_snapshot_run_keeps_nothing(db: Database, plan: CompiledPlan) -> None:
    before = db.state()
    assert sorted(snapshot_run(plan, {"events": [(1, 1), (1, 1), (2, 2)]})) == [(1, 1), (1, 1), (2, 2)]
    assert snapshot_run(plan, {}) == []
    assert db.state() == before


def test_late_joiners_under_a_writer_that_never_stops_have_exact_timelines(
    host: PersistentHost, plan: CompiledPlan
) -> None:
    """The rows of a joiner, plus all deltas after its LSN, are the rows at the end; whoever builds, loses the race, or joins late."""
    log: list[AggregateDelta] = []
    joined: list[tuple[list[tuple[Any, ...]], int]] = []
    begin = threading.Barrier(5)
    steps = times(30)

    def join(number: int) -> None:
        begin.wait()
        for i in range(5):
            joined.append(host.register_or_seed("c", plan, {"events": [(0, 0)]}, 1, 10 * number + i))

    threads = [threading.Thread(target=join, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    begin.wait()
    host.register_or_seed("c", plan, {"events": [(0, 0)]}, 1, 1000)
    rng = random.Random(7)
    have: Counter[tuple[Any, ...]] = Counter({(0, 0): 1})
    for lsn in range(2, steps + 2):
        row = (rng.randrange(4), 0)
        diff = 1 if not have[row] or rng.random() < 0.6 else -1
        have[row] += diff
        log += host.push_table_diff("c", "events", row, diff, lsn)
    for t in threads:
        t.join()
    final = host.cached_view("c", 9)
    assert final is not None and Counter(final.rows) == +have
    assert len(joined) == 20
    for rows, lsn in joined:
        mine = Counter(rows)
        for d in log:
            if d.lsn > lsn:
                mine[d.row] += d.diff
        assert +mine == +have
    host.close()


def test_release_and_register_race(db: Database, host: PersistentHost, plan: CompiledPlan) -> None:
    before = db.state()

    def cycle(number: int) -> None:
        for _ in range(times(5)):
            assert host.register_or_seed("c", plan, {"events": [(1, 1)]}, 1, number).rows == [(1, 1)]
            host.release("c", number)

    threads = [threading.Thread(target=cycle, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert host.subscribers("c") is None
    assert {k: v for k, v in db.state().items() if k != "log"} == {k: v for k, v in before.items() if k != "log"}


def test_nothing_grows_with_plans_that_come_and_go(db: Database, host: PersistentHost, plan: CompiledPlan) -> None:
    """A query that stays keeps the shared job of its table alive, in which the others come and go."""
    db.run("CREATE TABLE t (k BIGINT PRIMARY KEY)")
    keeper = db.run("SUBSCRIBE (SELECT k FROM t WHERE k > 100)")
    db.insert("t", (101,))

    def cycle(i: int) -> None:
        with db.run(f"SUBSCRIBE (SELECT k FROM t WHERE k > {i}) WITH (snapshot = true)") as sub:
            assert sub.next(20) is not None
        host.register_or_seed("c", plan, {"events": [(1, 1)]}, 1, 1)
        host.push_table_diff("c", "events", (i, i), 1, 2)
        host.release("c", 1)

    def sizes() -> dict[str, Any]:
        engine = db.engine
        job = engine.jobs.by_object[db.engine.hidden[next(iter(engine.hidden))].info.id]
        known = {k: v for k, v in db.state().items() if k not in ("log", "shared")}
        facts = (
            engine.writer._locks,
            engine.storage._orders,
            job.figures.rows_out,
            engine.hidden,
            engine.storage.feeds,
        )
        return known | {"sizes": [len(f) for f in facts], "threads": threading.active_count()}

    cycle(0)
    before = sizes()
    for i in range(1, times(10, quick=5)):
        cycle(i)
    assert sizes() == before
    keeper.cancel()
