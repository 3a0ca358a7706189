"""Several producers and transactions at once."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import effort
from tests.unit.runtime.alignment.sources import (
    COLUMNS,
    GROUP,
    apart,
    put,
    refused,
    shown,
    source,
    times,
    waiting,
)
from tests.unit.runtime.engines import Database
from tests.unit.runtime.storing import drop, fresh, make, opened, together

from penstock.api.database import Transaction
from penstock.catalog.objects import Kind, ObjectInfo, Watermark
from penstock.log import Part
from penstock.runtime.storage.alignment import Ahead
from penstock.runtime.storage.storage import Storage
from penstock.runtime.storage.writes import TableWriter


def test_a_transaction_counts_with_what_it_writes(db: Database) -> None:
    apart(db, on_drift="reject")
    both = Transaction(db.engine)
    both.insert("a", [(0, 101)])
    both.insert("b", [(0, 89)])
    error = refused(both._commit)
    assert "0.011 s ahead of b" in str(error)
    assert times(db, "a") == [40, 60, 100] and times(db, "b") == [50]
    both.insert("b", [(0, 90)])
    both._commit()
    assert times(db, "a") == [40, 60, 100, 101] and times(db, "b") == [50, 89, 90]


def test_a_transaction_that_waits_holds_no_lock(db: Database) -> None:
    """`a` and `b` are in step, and wait for `c`. Meanwhile others write the table of the transaction."""
    db.run(source("a") + source("b") + source("c") + "CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT);")
    put(db, "c", 50)
    put(db, "b", 50)
    put(db, "a", 100)
    transaction = Transaction(db.engine)
    transaction.insert("a", [(0, 101)])
    transaction.insert("b", [(0, 101)])
    transaction.insert("t", [(1, 1)])
    with waiting(db, "a", transaction._commit):
        db.insert("t", (1, 2), (2, 2))
        db.run("CREATE SOURCE unrelated (k BIGINT)")
        assert shown(db, "a").state == "paused"
        put(db, "c", 90)  # b is still at 50, but the transaction brings it to 101.
    assert transaction.lsn == db.engine.log.head
    assert db.rows("t") == {(1, 1): 1, (2, 2): 1}  # It replaces the row that came meanwhile.


def test_a_transaction_with_a_source_that_follows_values(db: Database) -> None:
    device = "k BIGINT, ts BIGINT, WATERMARK FOR ts"
    db.run(source("a", on_drift="reject") + source("b", columns=device, watermark_per="k"))
    db.insert("b", (1, 50), (2, 70))
    put(db, "a", 100)
    both = Transaction(db.engine)
    both.insert("a", [(0, 101)])
    both.insert("b", [(2, 200)])  # The first device is still at 50.
    assert "0.05 s ahead of b" in str(refused(both._commit))
    both.insert("b", [(1, 95)])
    both._commit()
    assert (shown(db, "a").watermark, shown(db, "b").watermark) == (101, 95)


def held_to(storage: Storage, infos: Sequence[ObjectInfo], limit: int) -> None:
    """Reads the log: no commit with rows took its source further past another one than the limit and its own step."""
    entries = sorted((e for i in infos for e in storage.log.entries(i.id)), key=lambda e: e.lsn)
    before: dict[int, int] = {}
    for lsn, commit in itertools.groupby(entries, key=lambda e: e.lsn):
        parts = list(commit)
        after = before | {e.object_id: e.watermark for e in parts if e.watermark is not None}
        for e in parts:
            others = [after[i] for i in before if i != e.object_id]
            if e.rows and others and e.object_id in before:
                step = after[e.object_id] - before[e.object_id]
                assert after[e.object_id] - min(others) <= limit + step, f"commit {lsn}"
        before = after


def test_eight_threads(db: Database) -> None:
    """Four write `a` and four write `b`, each commit 7 further than the last of its source. All would pass a check that is not in order."""
    db.run(source("a") + source("b"))
    put(db, "a", 0)
    put(db, "b", 0)
    each = effort.times(50, quick=20)
    clocks = {"a": iter(range(7, 10**9, 7)), "b": iter(range(7, 10**9, 7))}

    def produce(name: str) -> Callable[[], None]:
        def run() -> None:
            for _ in range(each):
                put(db, name, next(clocks[name]))

        return run

    together([produce(n) for n in ("a", "b") * 4])
    assert times(db, "a") == times(db, "b") == list(range(0, 7 * (4 * each + 1), 7))
    held_to(db.engine.storage, [db.engine.writer.target(n) for n in ("a", "b")], 10)


steps = st.lists(st.integers(0, 30), max_size=12)


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    with opened(tmp_path_factory.mktemp("aligned"), engine={"drift_timeout_ms": 30}) as storage:
        yield storage


@contextmanager
def pair(storage: Storage) -> Iterator[list[ObjectInfo]]:
    """Two sources of one group, both at 0."""
    group = GROUP | {"watermark_group": fresh("group")}
    made = [
        make(storage, fresh("s"), Kind.SOURCE, columns=COLUMNS, watermark=Watermark("ts"), options=group)
        for _ in range(2)
    ]
    for info in made:
        TableWriter(storage).insert(info.name, [(0, 0)])
    yield made
    for info in made:
        drop(storage, info)


@settings(max_examples=effort.times(10), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps, steps)
def test_of_two_producers_one_can_always_go_on(storage: Storage, one: list[int], two: list[int]) -> None:
    """Each writes a source, and moves its watermark to the end of time when it is done. Nobody is refused, after however long a wait."""
    with pair(storage) as infos:
        writer = TableWriter(storage)
        storage.settings = storage.settings.model_copy(
            update={"engine": storage.settings.engine.model_copy(update={"drift_timeout_ms": 20_000})}
        )

        def produce(info: ObjectInfo, by: list[int]) -> Callable[[], None]:
            def run() -> None:
                at = 0
                for step in by:
                    at += step
                    writer.insert(info.name, [(0, at), (1, max(0, at - 5))])
                storage.commit([Part(object_id=info.id, watermark=10**9, column_count=2)])

            return run

        together([produce(infos[0], one), produce(infos[1], two)])
        held_to(storage, infos, 10)
        assert [sum(e.rows for e in storage.log.entries(i.id)) for i in infos] == [
            1 + 2 * len(one),
            1 + 2 * len(two),
        ]


writes = st.lists(st.tuples(st.sampled_from([(0,), (1,), (0, 1)]), st.integers(0, 30)), max_size=6)


@settings(max_examples=effort.times(8), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(writes, writes)
def test_whatever_two_producers_write_in_whatever_order(storage: Storage, one: list[Any], two: list[Any]) -> None:
    """Each writes either source, or both in one transaction. A commit goes in or is refused within the limit, and nobody drifts further."""
    storage.settings = storage.settings.model_copy(
        update={"engine": storage.settings.engine.model_copy(update={"drift_timeout_ms": 30})}
    )
    with pair(storage) as infos:
        writer = TableWriter(storage)
        stored = threading.Semaphore(0)
        waited: list[float] = []

        def produce(writes: list[tuple[tuple[int, ...], int]]) -> Callable[[], None]:
            def run() -> None:
                for which, step in writes:
                    chosen = [infos[i] for i in which]
                    rows = [(i, storage.feed(i).part([(0, (storage.log.watermark(i.id) or 0) + step)])) for i in chosen]
                    began = time.monotonic()
                    try:
                        writer.commit([(i, "insert", part) for i, part in rows])
                        stored.release(len(rows))
                    except Ahead:
                        waited.append(time.monotonic() - began)

            return run

        together([produce(one), produce(two)])
        assert all(0.03 <= seconds < 10 for seconds in waited)
        held_to(storage, infos, 10)
        found = sum(e.rows for i in infos for e in storage.log.entries(i.id)) - 2
        assert all(stored.acquire(blocking=False) for _ in range(found)) and not stored.acquire(blocking=False)
