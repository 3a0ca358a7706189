"""Small changes wait in front of DuckDB. Nobody can tell, except by the time that it takes."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.effort import times
from tests.unit.ducks import reuse

from penstock.errors import PenstockError, fail
from penstock.serve import objects as objects_module
from penstock.serve import recent
from penstock.serve.store import ViewStore

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("x", pa.float64())])
Row = tuple[int, str | None, float | None]


@pytest.fixture(params=["memory", "disk"])
def store(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ViewStore]:
    reuse(monkeypatch)
    made = ViewStore(min_delta_rows=50, folder=tmp_path if request.param == "disk" else None, object_bytes=1)
    made.create(1, SCHEMA, keys=("id",), append_only=False)
    made.create(2, SCHEMA, keys=("id",), append_only=False)
    yield made
    made.close()


def change(*rows: tuple[Row, int]) -> pa.Table:
    columns = [pa.array([r[i] for r, _ in rows], f.type) for i, f in enumerate(SCHEMA)]
    weights = pa.array([w for _, w in rows], pa.int64())
    return pa.table([*columns, weights], names=[*SCHEMA.names, "__weight"])


def key(value: int | None) -> pa.Table:
    return pa.table({"id": pa.array([value], pa.int64())})


def read(store: ViewStore, value: int, name_id: int = 1) -> list[tuple[Any, ...]]:
    return [tuple(r.values()) for r in store.lookup(name_id, key(value)).to_pylist()]


def everything(store: ViewStore, name_id: int = 1) -> dict[int, tuple[Any, ...]]:
    rows = [tuple(r.values()) for r in store.snapshot(name_id)[0].to_pylist()]
    found = {r[0]: r for r in rows}
    assert len(found) == len(rows)
    return found


def test_small_changes_wait_until_somebody_reads_more_than_a_row(store: ViewStore) -> None:
    store.apply(1, change(((1, "a", 1.0), 1)), epoch=1, lsn=5)
    store.apply(1, change(((1, "a", 1.0), -1), ((1, "b", 2.0), 1)), epoch=2, lsn=6)
    assert store._objects.waiting
    assert (store.position(1), store.count(1)) == ((2, 6), 1)
    assert read(store, 1) == [(1, "b", 2.0)]
    assert read(store, 2) == []
    assert store.lookup(1, key(None)).num_rows == 0
    rows, epoch, lsn = store.snapshot(1)
    assert (rows.to_pylist(), epoch, lsn) == ([{"id": 1, "name": "b", "x": 2.0}], 2, 6)
    assert not store._objects.waiting
    assert read(store, 1) == [(1, "b", 2.0)]
    store.apply(1, change(((1, "b", 2.0), -1)), epoch=3, lsn=7)
    assert read(store, 1) == []
    assert store.query('SELECT count(*) AS n FROM "t"', {"t": 1}).to_pylist() == [{"n": 0}]


def test_a_row_that_comes_and_goes_in_one_change(store: ViewStore) -> None:
    store.apply(1, change(((1, "a", 1.0), 1), ((1, "a", 1.0), -1)), epoch=1, lsn=1)
    assert read(store, 1) == []
    store.apply(1, change(((1, "b", 1.0), 1)), epoch=2, lsn=2)
    store.apply(1, change(((1, "b", 1.0), 1), ((1, "b", 1.0), -1)), epoch=3, lsn=3)
    assert read(store, 1) == [(1, "b", 1.0)] and everything(store) == {1: (1, "b", 1.0)}


def test_an_epoch_is_applied_once(store: ViewStore) -> None:
    for _ in range(2):
        store.apply(1, change(((1, "a", 1.0), 1)), epoch=1, lsn=1)
    assert store.count(1) == 1
    assert everything(store) == {1: (1, "a", 1.0)}


@pytest.mark.parametrize("store", ["memory"], indirect=True)
def test_a_broken_change_is_found(store: ViewStore) -> None:
    store.apply(1, change(((1, "a", 1.0), -1)), epoch=1, lsn=1)
    with pytest.raises(PenstockError, match="PSK-8001"):
        store.snapshot(1)


@pytest.mark.parametrize("store", ["memory"], indirect=True)
def test_of_a_key_that_changes_again_and_again_the_first_and_the_last_row_go_to_duckdb(
    store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.apply(1, change(((1, "a", 1.0), 1), ((2, "b", 0.5), 1)), epoch=1, lsn=1)
    assert len(everything(store)) == 2
    written: list[int] = []
    insert = objects_module._insert
    monkeypatch.setattr(objects_module, "_insert", lambda *a: (written.append(a[2].num_rows), insert(*a)))
    last: Row = (1, "a", 1.0)
    for i in range(2, 200):
        now: Row = (1, "a", float(i))
        store.apply(1, change((last, -1), (now, 1), ((3, "c", None), 1 if i % 2 == 0 else -1)), epoch=i, lsn=i)
        last = now
        assert read(store, 1) == [now]
    assert written == []
    store.apply(1, change(((2, "b", 0.5), -1), ((2, "b", 0.25), 1)), epoch=200, lsn=200)
    assert sorted(everything(store).values()) == [last, (2, "b", 0.25)]
    assert written == [4]


@pytest.mark.parametrize("store", ["memory"], indirect=True)
def test_a_row_that_does_not_take_back_what_waits_goes_to_duckdb_at_once(store: ViewStore) -> None:
    store.apply(1, change(((1, "a", 1.0), 1)), epoch=1, lsn=1)
    store.apply(1, change(((1, "a", 2.0), 1)), epoch=2, lsn=2)
    assert not store._objects.waiting
    assert sorted(r["x"] for r in store.snapshot(1)[0].to_pylist()) == [1.0, 2.0]


def test_not_more_than_so_many_rows_wait(store: ViewStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects_module, "_MOST_WAITING", 10)
    for i in range(1, 26):
        store.apply(1, change(((i, "a", None), 1)), epoch=i, lsn=i)
        assert len(store._objects.layouts[1].recent.waiting) <= 5  # type: ignore[union-attr]
    assert len(everything(store)) == 25


def test_a_dropped_object_leaves_nothing(store: ViewStore) -> None:
    store.apply(1, change(((1, "a", 1.0), 1)), epoch=1, lsn=1)
    store.drop(1)
    with pytest.raises(PenstockError, match="PSK-1002"):
        read(store, 1)
    store.create(1, SCHEMA, keys=("id",), append_only=False)
    assert read(store, 1) == []
    assert everything(store) == {}


@pytest.mark.parametrize("store", ["memory"], indirect=True)
def test_only_the_object_at_fault_is_damaged(store: ViewStore, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(store._objects, "_on_damage", lambda name_id, why: seen.append(name_id))
    store.apply_many([(1, change(((1, "a", 1.0), 1)), 1), (2, change(((2, "b", 2.0), 1)), 1)], lsn=1)
    insert = objects_module._insert

    def fails(con: Any, layout: Any, table: pa.Table) -> None:
        if layout.id == 1:
            raise fail("PSK-7009", "Full.")
        insert(con, layout, table)

    monkeypatch.setattr(objects_module, "_insert", fails)
    assert everything(store, 2) == {2: (2, "b", 2.0)}
    assert seen == [1]
    for attempt in (lambda: store.snapshot(1), lambda: store.lookup(1, key(1))):
        with pytest.raises(PenstockError, match="PSK-7009"):
            attempt()


def test_the_cache_is_bounded(store: ViewStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "_MOST_ROWS", 5)
    for i in range(1, 21):
        store.apply(1, change(((i, "a", None), 1)), epoch=i, lsn=i)
    store.apply(1, change(((21, "long" * 1_000, None), 1)), epoch=21, lsn=21)
    assert len(everything(store)) == 21
    assert len(store._objects.cache._rows) <= 5
    assert [read(store, i) for i in range(1, 21)] == [[(i, "a", None)] for i in range(1, 21)]
    assert read(store, 21) == [(21, "long" * 1_000, None)]
    assert len(store._objects.cache._rows) == 5


@pytest.mark.parametrize("seed", range(times(3, quick=2)))
def test_any_sequence_of_changes_and_reads(store: ViewStore, seed: int) -> None:
    dice = random.Random(seed)
    model: dict[int, Row] = {}
    for epoch in range(1, min(200, times(60, quick=30))):
        rows: list[tuple[Row, int]] = []
        for k in dice.sample(range(30), dice.choice([1, 1, 1, 2, 25])):
            old = model.get(k)
            new = (
                None
                if dice.random() < 0.3
                else (k, dice.choice([None, "a", "é"]), dice.choice([None, 0.0, float("nan")]))
            )
            if repr(old) == repr(new):
                continue
            rows += [(old, -1)] if old is not None else []
            rows += [(new, 1)] if new is not None else []
            model.pop(k, None)
            if new is not None:
                model[k] = new
        dice.shuffle(rows)
        store.apply(1, change(*rows), epoch=epoch, lsn=epoch)
        for k in dice.choices(range(35), k=3):
            assert repr(read(store, k)) == repr([model[k]] if k in model else []), f"epoch {epoch}, key {k}"
        if dice.random() < 0.2:
            assert repr(sorted(everything(store).items())) == repr(sorted(model.items()))
        assert store.count(1) == len(model)
    assert repr(sorted(everything(store).items())) == repr(sorted(model.items()))


@pytest.mark.parametrize("indexed", [False, True])
def test_readers_never_go_back(store: ViewStore, monkeypatch: pytest.MonkeyPatch, indexed: bool) -> None:
    """Rows of one key, and whole snapshots, while another thread changes it."""
    monkeypatch.setattr(recent, "_UNINDEXED_READS", 1 if indexed else 1 << 30)
    done = threading.Event()
    wrong: list[object] = []

    def follow() -> None:
        last = 0
        while not done.is_set():
            found = read(store, 1) if last % 2 else [*everything(store).values()]
            at = int(found[0][1]) if found else 0
            if at < last or len(found) > 1:
                wrong.append((last, found))
            last = at

    readers = [threading.Thread(target=follow) for _ in range(3)]
    for r in readers:
        r.start()
    last = min(300, times(100, quick=50))
    for i in range(1, last + 1):
        rows = [((1, str(i - 1), None), -1)] if i > 1 else []
        store.apply(1, change(*rows, ((1, str(i), None), 1)), epoch=i, lsn=i)
    done.set()
    for r in readers:
        r.join(30)
    assert wrong == []
    assert read(store, 1) == [(1, str(last), None)]
