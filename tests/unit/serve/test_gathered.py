"""Small changes of objects without a key wait in front of DuckDB. Nobody can tell, except by the time that it takes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.effort import times
from tests.unit.ducks import reuse

from penstock.errors import PenstockError, fail
from penstock.serve import objects as objects_module
from penstock.serve.store import ViewStore

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.list_(pa.string()))])
APPENDED, CHANGED = 1, 2


@pytest.fixture(params=["memory", "disk"])
def store(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ViewStore]:
    reuse(monkeypatch)
    made = ViewStore(min_delta_rows=50, folder=tmp_path if request.param == "disk" else None, object_bytes=1)
    made.create(APPENDED, SCHEMA, append_only=True)
    made.create(CHANGED, SCHEMA, append_only=False)
    yield made
    made.close()


def change(*rows: tuple[int, int]) -> pa.Table:
    """Rows of a number and a weight."""
    columns = [[k for k, _ in rows], [[f"v{k}"] for k, _ in rows], [w for _, w in rows]]
    arrays = [pa.array(c, t) for c, t in zip(columns, [*SCHEMA.types, pa.int64()], strict=True)]
    return pa.table(arrays, names=[*SCHEMA.names, "__weight"])


def rows(*numbers: int) -> pa.Table:
    return change(*((k, 1) for k in numbers)).drop_columns(["__weight"])


def contents(store: ViewStore, name_id: int) -> Counter[int]:
    table, epoch, lsn = store.snapshot(name_id)
    assert (epoch, lsn) == store.position(name_id)
    assert table["v"].to_pylist() == [[f"v{k}"] for k in table["k"].to_pylist()]
    return Counter(table["k"].to_pylist())


@pytest.mark.parametrize("name_id", [APPENDED, CHANGED])
def test_small_changes_wait_until_somebody_reads(store: ViewStore, name_id: int) -> None:
    store.apply(name_id, rows(1, 2), epoch=1, lsn=5)
    store.apply(name_id, rows(2), epoch=2, lsn=6)
    assert store._objects.waiting
    assert (store.position(name_id), store.count(name_id)) == ((2, 6), 3)
    assert contents(store, name_id) == Counter({1: 1, 2: 2})
    assert not store._objects.waiting
    store.apply(name_id, rows(3), epoch=3, lsn=7)
    assert store.query('SELECT count(*) AS n FROM "t"', {"t": name_id}).to_pylist() == [{"n": 4}]


@pytest.mark.parametrize("store", ["memory"], indirect=True)
def test_changes_go_to_duckdb_in_one_statement_for_each_object(
    store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[int, int]] = []
    insert = objects_module._insert
    monkeypatch.setattr(objects_module, "_insert", lambda *a: (written.append((a[1].id, a[2].num_rows)), insert(*a)))
    for epoch in range(1, 101):
        store.apply_many([(APPENDED, rows(epoch), epoch), (CHANGED, change((epoch, 1), (epoch - 1, -1)), epoch)], epoch)
    assert written == []
    assert contents(store, APPENDED) == Counter(range(1, 101))
    assert written == [(APPENDED, 100), (CHANGED, 200)]


def test_a_retraction_from_an_append_only_object_is_refused_at_once(store: ViewStore) -> None:
    store.apply(APPENDED, rows(1), epoch=1, lsn=1)
    with pytest.raises(PenstockError, match="PSK-8001"):
        store.apply(APPENDED, change((1, -1)), epoch=2, lsn=2)
    assert contents(store, APPENDED) == Counter({1: 1})


@pytest.mark.parametrize("store", ["memory"], indirect=True)
def test_only_the_object_at_fault_is_damaged(store: ViewStore, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(store._objects, "_on_damage", lambda name_id, why: seen.append(name_id))
    store.apply_many([(APPENDED, rows(1), 1), (CHANGED, rows(2), 1)], lsn=1)
    insert = objects_module._insert

    def fails(con: Any, layout: Any, table: pa.Table) -> None:
        if layout.id == APPENDED:
            raise fail("PSK-8001", "struck")
        insert(con, layout, table)

    monkeypatch.setattr(objects_module, "_insert", fails)
    assert contents(store, CHANGED) == Counter({2: 1})
    assert seen == [APPENDED]
    with pytest.raises(PenstockError, match="PSK-8001: struck"):
        store.snapshot(APPENDED)


def test_a_dropped_object_leaves_nothing(store: ViewStore) -> None:
    store.apply(APPENDED, rows(1), epoch=1, lsn=1)
    store.drop(APPENDED)
    store.create(APPENDED, SCHEMA, append_only=True)
    assert contents(store, APPENDED) == Counter()


def test_what_waits_is_in_a_snapshot(store: ViewStore, tmp_path: Path) -> None:
    store.apply(APPENDED, rows(1), epoch=1, lsn=1)
    store.save(APPENDED, tmp_path / "one.arrow")
    if (tmp_path / "one.arrow").exists():
        store.create(3, SCHEMA, append_only=True)
        assert store.load(3, tmp_path / "one.arrow") == (1, 1)
        assert contents(store, 3) == Counter({1: 1})


@pytest.mark.parametrize("seed", range(times(4, quick=2)))
def test_any_sequence_of_changes(store: ViewStore, seed: int) -> None:
    chance = random.Random(seed)
    models = {APPENDED: Counter[int](), CHANGED: Counter[int]()}
    for epoch in range(1, 60):
        size = chance.choice([1, 3, 300])
        added = [chance.randrange(40) for _ in range(size)]
        taken = [k for k in models[CHANGED] if models[CHANGED][k] and chance.random() < 0.2]
        both = Counter(added)
        both.subtract(taken)
        store.apply_many(
            [(APPENDED, rows(*added), epoch), (CHANGED, change(*((k, w) for k, w in both.items() if w)), epoch)], epoch
        )
        models[APPENDED] += Counter(added)
        models[CHANGED].update(both)
        for name_id in chance.sample([APPENDED, CHANGED], chance.randrange(3) if chance.random() < 0.3 else 0):
            assert contents(store, name_id) == +models[name_id]
    for name_id, model in models.items():
        assert contents(store, name_id) == +model
        assert store.count(name_id) == model.total()
