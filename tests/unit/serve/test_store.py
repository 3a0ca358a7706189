from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import times
from tests.unit.ducks import reuse

from penstock.errors import PenstockError
from penstock.serve.store import ViewStore

PAIR = pa.schema([("k", pa.int64()), ("v", pa.string())])


def changes(*rows: tuple[Any, ...], schema: pa.Schema = PAIR) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * (len(schema) + 1)
    weighted = schema.append(pa.field("__weight", pa.int64()))
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, weighted, strict=True)], schema=weighted)


def bag(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(r.values()) for r in table.to_pylist())


@pytest.fixture(params=["memory", "disk"])
def store(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ViewStore]:
    """Objects in memory; or on disk as soon as they have a row, each change in a file of its own."""
    reuse(monkeypatch)
    on_disk = request.param == "disk"
    store = ViewStore(min_delta_rows=20, **({"folder": tmp_path / "views", "object_bytes": 1} if on_disk else {}))
    yield store
    store.close()


def test_rows_keep_their_multiplicity(store: ViewStore) -> None:
    store.create(1, PAIR, append_only=False)
    store.apply(1, changes((1, "a", 3), (None, None, 2)), epoch=1, lsn=10)
    store.apply(1, changes((1, "a", -1), (None, None, -1), (2, "b", 1)), epoch=2, lsn=12)
    table, epoch, lsn = store.snapshot(1)
    assert bag(table) == {(1, "a"): 2, (None, None): 1, (2, "b"): 1}
    assert (epoch, lsn) == store.position(1) == (2, 12)
    assert store.count(1) == 4


def test_an_epoch_is_applied_once(store: ViewStore) -> None:
    store.create(1, PAIR, append_only=False)
    for _ in range(2):
        store.apply(1, changes((1, "a", 1)), epoch=1, lsn=10)
    assert store.count(1) == store.snapshot(1)[0].num_rows == 1


def test_append_only_rows_need_no_weight_and_take_no_retraction(store: ViewStore) -> None:
    store.create(1, PAIR, append_only=True)
    store.apply(1, pa.table({"k": [1, 1], "v": ["a", "a"]}), epoch=1, lsn=1)
    store.apply(1, changes((2, "b", 2)), epoch=2, lsn=2)
    assert bag(store.snapshot(1)[0]) == {(1, "a"): 2, (2, "b"): 2}
    with pytest.raises(PenstockError, match="PSK-8001"):
        store.apply(1, changes((2, "b", -1)), epoch=3, lsn=3)
    assert store.position(1) == (2, 2)


def test_a_negative_total_is_an_internal_error(store: ViewStore) -> None:
    store.create(1, PAIR, append_only=False)
    store.apply(1, changes((1, "a", -1)), epoch=1, lsn=1)
    for read in (lambda: store.snapshot(1), lambda: store.query("SELECT * FROM x", {"x": 1})):
        with pytest.raises(PenstockError, match="PSK-8001"):
            read()


def test_two_rows_of_one_kind_under_a_key_are_an_internal_error(store: ViewStore) -> None:
    store.create(1, PAIR, keys=("k",), append_only=False)
    store.apply(1, changes((1, "a", 2)), epoch=1, lsn=1)
    with pytest.raises(PenstockError, match="PSK-8001"):
        store.snapshot(1)


def test_a_failed_commit_leaves_nothing_of_it(store: ViewStore) -> None:
    store.create(1, PAIR, append_only=False)
    store.create(2, PAIR, append_only=True)
    with pytest.raises(PenstockError):
        store.apply_many([(1, changes((1, "a", 1)), 1), (2, changes((1, "a", -1)), 1)], 5)
    assert store.count(1) == store.count(2) == 0
    assert store.snapshot(1)[0].num_rows == 0


def test_query_names_objects_and_keeps_order(store: ViewStore) -> None:
    store.create(1, PAIR, append_only=False)
    store.create(2, PAIR, append_only=True)
    store.apply_many([(1, changes((1, "a", 1), (2, "b", 1)), 1), (2, changes((2, "x", 1)), 1)], 7)
    joined = store.query(
        'WITH j AS (SELECT A.k, "b c".v FROM A JOIN "b c" USING (k)) SELECT * FROM j', {"a": 1, "b c": 2}
    )
    assert joined.to_pylist() == [{"k": 2, "v": "x"}]
    counted = store.query(
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r, a WHERE n = a.k) FROM r", {"a": 1}
    )
    assert counted.to_pydict() == {"n": [1, 2, 3]}
    ordered = store.query("SELECT k FROM a ORDER BY k DESC -- all", {"a": 1})
    assert ordered.to_pydict() == {"k": [2, 1]}
    assert store.query("SELECT 1 AS one", {}).to_pydict() == {"one": [1]}
    with pytest.raises(PenstockError, match="PSK-7001"):
        store.query("SELECT nothing FROM a", {"a": 1})
    assert store.query("SELECT count(*) AS n FROM a", {"a": 1}).to_pydict() == {"n": [2]}


def test_lookup_finds_rows_by_key(store: ViewStore) -> None:
    store.create(1, PAIR, keys=("k",), append_only=False)
    store.apply(1, changes(*[(i, f"v{i}", 1) for i in range(50)], (None, "null", 1)), epoch=1, lsn=1)
    store.apply(1, changes((3, "v3", -1), (3, "new", 1), (4, "v4", -1)), epoch=2, lsn=2)
    for key, values in ((3, ["new"]), (4, []), (5, ["v5"])):
        assert store.lookup(1, pa.table({"k": pa.array([key], pa.int64())}))["v"].to_pylist() == values
    found = store.lookup(1, pa.table({"k": pa.array([3, 4, 5, 99], pa.int64())}))
    assert bag(found) == {(3, "new"): 1, (5, "v5"): 1}
    assert bag(store.lookup(1, pa.table({"k": pa.array([None, 7], pa.int64())}))) == {(None, "null"): 1, (7, "v7"): 1}


EVERY = pa.schema(
    [
        ("t", pa.timestamp("us", tz="UTC")),
        ("n", pa.timestamp("us")),
        ("d", pa.decimal128(38, 10)),
        ("l", pa.list_(pa.field("element", pa.int32()))),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("s", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.field("element", pa.string())))])),
        ("b", pa.binary()),
        ("day", pa.date32()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("yes", pa.bool_()),
        pa.field('odd "name', pa.string(), nullable=False),
    ]
)
FULL = (
    datetime(2024, 1, 1, tzinfo=UTC),
    datetime(1, 1, 1),
    Decimal("1.5"),
    [1, None],
    [("a", 1)],
    {"a": 1, "b": ["x", None]},
    b"\x00\xff",
    date(2024, 1, 1),
    float("inf"),
    0.5,
    1,
    2,
    True,
    "é",
)
EMPTY = (*[None] * 13, "")


def test_types_come_out_as_they_went_in(store: ViewStore, tmp_path: Path) -> None:
    store.create(1, EVERY, append_only=False)
    store.apply(1, changes((*FULL, 2), (*EMPTY, 1), schema=EVERY), epoch=1, lsn=1)
    store.apply(1, changes((*FULL, -1), schema=EVERY), epoch=2, lsn=2)
    table = store.snapshot(1)[0]
    assert table.schema.equals(EVERY)
    rows = [tuple(r.values()) for r in table.to_pylist()]
    assert sorted(rows, key=lambda r: r[-1]) == [EMPTY, FULL]
    store.save(1, tmp_path / "one.arrow")
    store.create(2, EVERY, append_only=False)
    assert store.load(2, tmp_path / "one.arrow") == (2, 2)
    assert store.snapshot(2)[0].schema.equals(EVERY)
    store.apply(2, changes((*FULL, -1), schema=EVERY), epoch=3, lsn=3)
    assert store.count(2) == store.snapshot(2)[0].num_rows == 1


def test_nan_and_signed_zero_merge(store: ViewStore) -> None:
    schema = pa.schema([("f", pa.float64())])
    store.create(1, schema, append_only=False)
    store.apply(1, changes((float("nan"), 1), (0.0, 1), schema=schema), epoch=1, lsn=1)
    store.apply(1, changes((float("nan"), -1), (-0.0, -1), schema=schema), epoch=2, lsn=2)
    assert store.snapshot(1)[0].num_rows == 0


def test_drop_and_use_again(store: ViewStore) -> None:
    store.create(1, PAIR, append_only=False)
    store.drop(1)
    store.drop(1)
    for read in (lambda: store.snapshot(1), lambda: store.position(1), lambda: store.query("FROM x", {"x": 1})):
        with pytest.raises(PenstockError, match=r"PSK-1002.*dropped"):
            read()
    store.create(1, PAIR, append_only=False)
    assert store.position(1) == (0, 0)
    assert store.ids() == [1]


def test_a_damaged_file_is_named(store: ViewStore, tmp_path: Path) -> None:
    store.create(1, PAIR, append_only=False)
    (tmp_path / "bad.arrow").write_bytes(b"ARROW1 nonsense")
    with pytest.raises(PenstockError, match=r"PSK-6001.*bad\.arrow"):
        store.load(1, tmp_path / "bad.arrow")


def test_after_close_everything_raises() -> None:
    store = ViewStore()
    store.create(1, PAIR, append_only=False)
    store.close()
    store.close()
    for call in (lambda: store.snapshot(1), lambda: store.count(1), lambda: store.query("SELECT 1", {})):
        with pytest.raises(PenstockError, match="PSK-0004"):
            call()


@pytest.fixture(scope="module", params=["memory", "disk"])
def compacting(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ViewStore, Iterator[int]]]:
    """Small thresholds, so that compaction runs between and beside the changes; and object ids that are not taken."""
    folder = tmp_path_factory.mktemp("views") if request.param == "disk" else None
    store = ViewStore(min_delta_rows=4, folder=folder, object_bytes=1)
    yield store, count(1)
    store.close()


@settings(max_examples=times(8, quick=5), deadline=None)
@given(st.data())
def test_any_trace_equals_a_counter(compacting: tuple[ViewStore, Iterator[int]], data: st.DataObject) -> None:
    store, ids = compacting
    own = next(ids)
    model: Counter[tuple[Any, ...]] = Counter()
    row = st.tuples(st.none() | st.integers(0, 3), st.none() | st.sampled_from(["a", "b"]))
    store.create(own, PAIR, append_only=False)
    for epoch in range(1, data.draw(st.integers(1, 8)) + 1):
        delta = data.draw(st.dictionaries(row, st.integers(-2, 3), max_size=6))
        kept = {r: max(w, -model[r]) for r, w in delta.items()}
        store.apply(own, changes(*[(*r, w) for r, w in kept.items()]), epoch=epoch, lsn=epoch)
        model.update(kept)
        table, at, _ = store.snapshot(own)
        assert at == epoch
        assert bag(table) == +model
        assert store.count(own) == model.total()
    store.drop(own)


def test_readers_see_whole_commits_while_the_store_compacts(store: ViewStore) -> None:
    """Two objects always have the same rows; a reader that saw half a commit would find a difference."""
    for i in (1, 2):
        store.create(i, PAIR, append_only=False)
    wrong: list[object] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                apart = store.query("(FROM a EXCEPT ALL FROM b) UNION ALL (FROM b EXCEPT ALL FROM a)", {"a": 1, "b": 2})
                if apart.num_rows:
                    wrong.append(apart)
                table, epoch, lsn = store.snapshot(1)
                if table.num_rows != min(epoch, 5) or lsn != epoch * 2:
                    wrong.append((epoch, lsn, table.num_rows))
        except BaseException as why:
            wrong.append(why)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for r in readers:
        r.start()
    for epoch in range(1, times(40, quick=20)):
        rows = [(epoch, "x", 1)] + ([(epoch - 5, "x", -1)] if epoch > 5 else [])
        delta = changes(*rows)
        store.apply_many([(1, delta, epoch), (2, delta, epoch)], epoch * 2)
    done.set()
    for r in readers:
        r.join()
    assert wrong == []
