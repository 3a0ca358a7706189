from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.runtime.storing import (
    follow,
    in_contents,
    in_log,
    make,
    opened,
    part,
    read,
    settings,
    summed,
    together,
)

from penstock.catalog.objects import Kind
from penstock.errors import PenstockError
from penstock.log import Part
from penstock.runtime.storage.storage import Storage

ONE, TWO = (1, "one"), (2, "two")


def test_a_commit_is_in_the_log_the_contents_and_with_subscribers(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        table, stream = make(storage, "t"), make(storage, "s", Kind.STREAM)
        told, streamed = follow(storage, table), follow(storage, stream)
        lsn = storage.commit([part(table, (*ONE, 1), (*TWO, 1))]).lsn
        assert lsn == storage.log.head
        assert in_log(storage, table) == in_contents(storage, table) == {ONE: 1, TWO: 1}
        assert storage.store.position(table.id) == (1, lsn)
        assert read(told, lsn) == [(lsn, {ONE: 1, TWO: 1})]

        both = storage.commit([part(table, (*ONE, -1)), part(stream, (*ONE, 1))])
        assert [e.object_id for e in both.entries] == [table.id, stream.id]
        assert in_contents(storage, table) == {TWO: 1}
        assert read(told, both.lsn) == [(both.lsn, {ONE: -1})]
        assert read(streamed, both.lsn) == [(both.lsn, {ONE: 1})]


def test_a_source_keeps_rows_in_the_log_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        source = make(storage, "s", Kind.SOURCE)
        storage.commit([part(source, ONE)])
        assert in_log(storage, source) == {ONE: 1}
        assert source.id not in storage.store.ids()


def test_readers_see_a_commit_into_two_objects_as_a_whole(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        one, two = make(storage, "a"), make(storage, "b")
        done = threading.Event()
        seen: list[tuple[int, int]] = []

        looking = threading.Event()

        def write() -> None:
            try:
                assert looking.wait(10)
                for i in range(15):
                    storage.commit([part(one, (i, "x", 1)), part(two, (i, "x", 1))])
            finally:
                done.set()

        def look() -> None:
            while not done.is_set():
                counts = storage.store.query(
                    "SELECT (SELECT count(*) FROM a) AS a, (SELECT count(*) FROM b) AS b", {"a": one.id, "b": two.id}
                )
                seen.append((counts["a"][0].as_py(), counts["b"][0].as_py()))
                looking.set()

        together([write, look])
        assert seen and all(a == b for a, b in seen)


def test_eight_threads_publish_and_apply_in_the_order_of_lsns(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        views = [make(storage, f"v{i}", Kind.VIEW) for i in range(3)]
        subscriptions = [follow(storage, v) for v in views]
        applied: dict[int, list[int]] = {v.id: [] for v in views}
        apply_many = storage.store.apply_many

        def noted(changes: Sequence[tuple[int, pa.Table, int]], lsn: int) -> None:
            for object_id, _, _ in changes:
                applied[object_id].append(lsn)
            apply_many(changes, lsn)

        storage.store.apply_many = noted  # type: ignore[method-assign]
        sets = [(0, 1), (1, 0), (1, 2), (2, 1), (0, 2), (2, 0), (0, 1, 2), (2, 1, 0)]
        lsns: list[list[int]] = [[] for _ in sets]

        def write(thread: int) -> Callable[[], None]:
            def run() -> None:
                for i in range(5):
                    parts = [part(views[v], (thread, str(i), 1)) for v in sets[thread]]
                    lsns[thread].append(storage.commit(parts).lsn)

            return run

        together([write(t) for t in range(len(sets))])
        assert sorted(n for own in lsns for n in own) == list(range(1, storage.log.head + 1))
        for number, (view, subscription) in enumerate(zip(views, subscriptions, strict=True)):
            entries = storage.log.entries(view.id)
            order = [e.lsn for e in entries]
            assert [e.epoch for e in entries] == list(range(1, len(entries) + 1))
            assert applied[view.id] == order
            got = read(subscription, order[-1])
            assert [lsn for lsn, _ in got] == order
            want = Counter((t, str(i)) for t, objects in enumerate(sets) if number in objects for i in range(5))
            assert summed(rows for _, rows in got) == in_contents(storage, view) == in_log(storage, view) == want


def test_a_log_that_refuses_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as storage:
        table = make(storage, "t")
        told = follow(storage, table)
        with pytest.raises(PenstockError, match="PSK-0009"):
            storage.commit([part(table, (*ONE, 1)), part(table, (*TWO, 1))])
        assert storage.log.head == 0 and not in_contents(storage, table)
        lsn = storage.commit([part(table, (*ONE, 1))]).lsn
        assert read(told, lsn) == [(1, {ONE: 1})]


def test_a_close_that_fails_releases_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage(tmp_path, settings())

    def broken() -> None:
        raise ValueError("the hub")

    monkeypatch.setattr(storage.hub, "close", broken)
    with pytest.raises(ValueError, match="the hub"):
        storage.close()
    with pytest.raises(PenstockError, match="PSK-0004"):
        storage.log.append([Part(1)])
    with pytest.raises(PenstockError, match="PSK-0004"):
        storage.store.snapshot(1)
