"""Rows by key come from an index once they are read, with the same result as from DuckDB."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from tests.effort import times
from tests.unit.ducks import reuse

from penstock.errors import PenstockError
from penstock.serve import indexer, keyindex, recent
from penstock.serve.keyindex import KeyIndex
from penstock.serve.store import ViewStore

Key = tuple[Any, ...]
NEW_YEAR = datetime.datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC"))
KEYS: dict[str, tuple[list[pa.DataType], Callable[[int], Key]]] = {
    "bigint": ([pa.int64()], lambda i: ((i - 10) << 40,)),
    "tinyint": ([pa.int8()], lambda i: (i - 10,)),
    "string": ([pa.string()], lambda i: ("aä😀｡"[i % 4] * (i % 3) + str(i),)),
    "decimal": ([pa.decimal128(12, 2)], lambda i: (Decimal(i * 37 - 200).scaleb(-2),)),
    "timestamp": ([pa.timestamp("us", "UTC")], lambda i: (NEW_YEAR - datetime.timedelta(seconds=i * 7 - 50),)),
    "several": (
        [pa.string(), pa.date32(), pa.bool_()],
        lambda i: (f"k{i % 3}", datetime.date(2026, 1, 1 + i % 5), i % 2 == 0),
    ),
}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ViewStore]:
    reuse(monkeypatch)
    monkeypatch.setattr(recent, "_UNINDEXED_READS", 1)
    made = ViewStore(min_delta_rows=50)
    yield made
    made.close()


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ViewStore]:
    reuse(monkeypatch)
    made = ViewStore(folder=tmp_path, object_bytes=1)
    yield made
    made.close()


class Object:
    """An object of the store with a key of some types and two more columns, and what it has to contain."""

    def __init__(self, store: ViewStore, kinds: list[pa.DataType], name_id: int = 1) -> None:
        self.store, self.id, self.epoch = store, name_id, 0
        self.names = tuple(f"k{i}" for i in range(len(kinds)))
        kept = [pa.field(n, k) for n, k in zip(self.names, kinds, strict=True)]
        # The key is not where the index of a column would suggest.
        self.schema = pa.schema([("x", pa.float64()), *kept, ("name", pa.string())])
        self.model: dict[Key, tuple[Any, ...]] = {}
        store.create(name_id, self.schema, keys=self.names, append_only=False)

    def write(self, rows: dict[Key, tuple[Any, ...] | None]) -> None:
        changes: list[tuple[tuple[Any, ...], int]] = []
        for key, new in rows.items():
            old = self.model.pop(key, None)
            if old is not None:
                changes.append((old, -1))
            if new is not None:
                self.model[key] = (new[0], *key, new[1])
                changes.append((self.model[key], 1))
        self.apply(changes)

    def apply(self, changes: list[tuple[tuple[Any, ...], int]]) -> None:
        self.epoch += 1
        arrays = [pa.array([r[i] for r, _ in changes], f.type) for i, f in enumerate(self.schema)]
        arrays.append(pa.array([w for _, w in changes], pa.int64()))
        table = pa.table(arrays, names=[*self.schema.names, "__weight"])
        self.store.apply(self.id, table, epoch=self.epoch, lsn=self.epoch)

    def read(self, key: Key) -> list[tuple[Any, ...]]:
        arrays = [pa.array([v], self.schema.field(n).type) for n, v in zip(self.names, key, strict=True)]
        return [tuple(r.values()) for r in self.store.lookup(self.id, pa.table(arrays, names=self.names)).to_pylist()]

    def check(self, key: Key) -> None:
        assert repr(self.read(key)) == repr([self.model[key]] if key in self.model else []), key

    @property
    def index(self) -> KeyIndex | None:
        found = self.store._objects.layouts[self.id].recent
        assert found is not None
        return found.index


@pytest.mark.parametrize("kind", KEYS)
def test_any_sequence_of_changes_and_reads(store: ViewStore, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The index is built, outgrown, built again and dropped in between."""
    monkeypatch.setattr(keyindex, "_LEAST_CHANGED", 20)
    assert _any_sequence(store, kind)


@pytest.mark.parametrize("kind", KEYS)
def test_any_sequence_of_changes_and_reads_on_disk(on_disk: ViewStore, kind: str) -> None:
    assert not _any_sequence(on_disk, kind)
    assert on_disk.on_disk()


def _any_sequence(store: ViewStore, kind: str) -> int:
    kinds, key = KEYS[kind]
    made = Object(store, kinds)
    dice = random.Random(kind)
    indexed = 0
    for _ in range(min(400, times(30, quick=20))):
        some = [key(i) for i in dice.sample(range(30), dice.choice([1, 1, 2, 17, 25]))]
        values = (None, 0.0, 1.5, float("nan"))
        made.write({k: None if dice.random() < 0.3 else (dice.choice(values), dice.choice([None, "é"])) for k in some})
        if dice.random() < 0.7:
            for i in dice.choices(range(32), k=4):
                made.check(key(i))
        if dice.random() < 0.3:
            store.settle()
        if dice.random() < 0.2:
            assert store.snapshot(1)[0].num_rows == len(made.model)
        indexed += made.index is not None
    for i in range(32):
        made.check(key(i))
    return indexed


def test_rows_that_are_read_once_need_no_index(store: ViewStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "_UNINDEXED_READS", 3)
    made = Object(store, [pa.int64()])
    made.write({(i,): (1.0, "a") for i in range(100)})
    for i, built in ((1, False), (2, False), (3, True)):
        made.check((i,))
        store.settle()
        assert (made.index is not None) == built


def test_a_row_without_a_key_is_found_by_none(store: ViewStore) -> None:
    made = Object(store, [pa.int64()])
    made.apply([((1.0, None, "nobody"), 1), *(((1.0, i, "a"), 1) for i in range(20))])
    for i in range(2):
        assert len(made.read((i,))) == 1
        store.settle()
    made.apply([((1.0, None, "nobody"), -1), ((1.0, 3, "a"), -1), *(((1.0, i, "a"), 1) for i in range(20, 40))])
    assert (made.read((3,)), made.read((21,))) == ([], [(1.0, 21, "a")])
    assert made.index is not None


def test_two_rows_under_one_key_are_refused(store: ViewStore) -> None:
    made = Object(store, [pa.int64()])
    made.write({(i,): (1.0, "a") for i in range(100)})
    made.check((1,))
    store.settle()
    assert made.index is not None
    made.apply([((2.0, 7, "one"), 1), ((2.0, 7, "two"), 1), *(((2.0, i, "b"), 1) for i in range(100, 140))])
    assert made.read((120,)) == [(2.0, 120, "b")]
    assert made.index is None
    store.settle()
    assert len(made.read((7,))) == 3, "each is a row of its own for DuckDB"


def test_indexes_share_a_limit(store: ViewStore) -> None:
    rows = {(i,): (1.0, "a" * 20) for i in range(1_000)}
    objects = [Object(store, [pa.int64()], i) for i in (1, 2, 3)]
    for o in objects:
        o.write(rows)
        o.check((1,))
        store.settle()
    assert all(o.index is not None for o in objects)
    assert objects[2].index is not None
    store._objects.indexer._most_bytes = objects[2].index.size * 2 + 1_000
    objects[0].check((2,))
    objects.append(Object(store, [pa.int64()], 4))
    objects[3].write(rows)
    objects[3].check((1,))
    store.settle()
    assert [o.index is not None for o in objects] == [True, False, False, True], "the least recently used leave"
    store._objects.indexer._most_bytes = 1_000
    objects[1].check((5,))
    store.settle()
    assert objects[1].index is None
    for o in objects:
        o.write({(5,): None, (7,): (2.5, "b")})
        for i in range(10):
            o.check((i,))


def test_an_index_that_cannot_be_built_is_done_without(
    store: ViewStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise pa.ArrowInvalid("no")

    made = Object(store, [pa.int64()])
    made.write({(i,): (1.0, "a") for i in range(100)})
    with monkeypatch.context() as patch:
        patch.setattr(indexer, "contents_run", fails)
        made.check((1,))
        store.settle()
    assert "was not indexed" in caplog.text
    made.check((2,))
    store.settle()
    assert made.index is not None


def test_an_object_that_is_dropped_while_it_is_indexed(store: ViewStore) -> None:
    made = Object(store, [pa.int64()])
    made.write({(i,): (1.0, "a") for i in range(100)})
    made.check((1,))
    store.drop(1)
    store.settle()
    with pytest.raises(PenstockError, match="PSK-1002"):
        made.read((1,))
