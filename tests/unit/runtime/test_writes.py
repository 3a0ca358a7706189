from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.effort import times
from tests.unit.runtime.storing import Row, Rows, added, drop, in_contents, in_log, make, opened

from penstock.catalog.objects import Column, Connector, Kind, ObjectInfo, Watermark
from penstock.errors import PenstockError, fail
from penstock.runtime.storage.storage import Storage
from penstock.runtime.storage.writes import Action, TableWriter, Write

ONE, TWO, THREE = (1, "one"), (2, "two"), (3, "three")
UNO = (1, "uno")


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    with opened(tmp_path_factory.mktemp("writes")) as storage:
        yield storage


@pytest.fixture(scope="module")
def writer(storage: Storage) -> TableWriter:
    return TableWriter(storage)


_names = iter(f"t{n}" for n in range(10**6))


def table(storage: Storage, kind: Kind = Kind.TABLE, **more: Any) -> ObjectInfo:
    return make(storage, next(_names), kind, **more)


def write(storage: Storage, info: ObjectInfo, action: Action, *rows: Row) -> Write:
    return info, action, storage.feed(info).part(list(rows))


def refused(code: str, writer: TableWriter, writes: list[Write], **more: Any) -> PenstockError:
    """The commit and the preview are refused alike, and nothing is stored."""
    head = writer._storage.log.head
    if not more:
        with pytest.raises(PenstockError) as preview:
            writer.preview(writes)
        assert preview.value.code == code
    with pytest.raises(PenstockError) as error:
        writer.commit(writes, **more)
    assert error.value.code == code and writer._storage.log.head == head
    return error.value


def test_an_insert_takes_the_place_of_the_row_with_its_key(storage: Storage, writer: TableWriter) -> None:
    t = table(storage)
    first = writer.insert(t.name, [ONE, TWO])
    second = writer.insert(t.name.upper(), {"k": 1, "v": "uno"})
    assert second == first + 1 == storage.log.head
    assert in_contents(storage, t) == in_log(storage, t) == {UNO: 1, TWO: 1}
    # Of several rows with one key the last counts.
    writer.insert(t.name, [(5, "a"), THREE, (5, "b"), (5, None)])
    assert in_contents(storage, t) == {UNO: 1, TWO: 1, THREE: 1, (5, None): 1}


def test_a_write_that_changes_nothing_is_a_commit_without_rows(storage: Storage, writer: TableWriter) -> None:
    t = table(storage)
    writer.insert(t.name, [ONE, (2, None)])
    lsn = writer.insert(t.name, [ONE, (2, None)])
    gone = [write(storage, t, "delete", ONE), write(storage, t, "insert", ONE)]
    assert writer.commit(gone) == lsn + 1
    assert sum(e.rows for e in storage.log.entries(t.id)) == 2 and in_contents(storage, t) == {ONE: 1, (2, None): 1}


def test_a_table_without_a_key_is_a_bag(storage: Storage, writer: TableWriter) -> None:
    t = table(storage, key=())
    writer.insert(t.name, [ONE, ONE, TWO])
    writer.commit([write(storage, t, "delete", ONE), write(storage, t, "place", TWO)])
    assert in_contents(storage, t) == in_log(storage, t) == {ONE: 1, TWO: 2}
    refused("PSK-5008", writer, [write(storage, t, "delete", ONE, ONE)])
    refused("PSK-5008", writer, [write(storage, t, "delete", (9, None))])
    writer.commit([write(storage, t, "delete", TWO, ONE, TWO)])
    assert not in_contents(storage, t)


def test_a_placed_row_must_not_meet_another(storage: Storage, writer: TableWriter) -> None:
    t = table(storage)
    writer.insert(t.name, [ONE, TWO])
    assert "the same key (k)" in refused("PSK-5006", writer, [write(storage, t, "place", UNO)]).detail
    refused("PSK-5006", writer, [write(storage, t, "place", THREE, THREE)])
    refused("PSK-5006", writer, [write(storage, t, "insert", THREE), write(storage, t, "place", THREE)])
    refused("PSK-5006", writer, [write(storage, t, "delete", ONE), write(storage, t, "place", UNO, TWO)])
    # An UPDATE may exchange keys, as what it takes away is gone when it places.
    writer.commit([write(storage, t, "delete", ONE, TWO), write(storage, t, "place", (2, "one"), (1, "two"))])
    assert in_contents(storage, t) == {(2, "one"): 1, (1, "two"): 1}


def test_a_deleted_row_must_be_there_as_it_was_read(storage: Storage, writer: TableWriter) -> None:
    t = table(storage)
    writer.insert(t.name, [ONE, TWO])
    assert "no longer exists" in refused("PSK-5008", writer, [write(storage, t, "delete", UNO)]).detail
    refused("PSK-5008", writer, [write(storage, t, "delete", THREE)])
    refused("PSK-5008", writer, [write(storage, t, "delete", ONE, ONE)])
    refused("PSK-5008", writer, [write(storage, t, "delete", ONE), write(storage, t, "delete", ONE)])
    refused("PSK-5008", writer, [write(storage, t, "insert", UNO), write(storage, t, "delete", ONE)])
    writer.commit([write(storage, t, "insert", UNO), write(storage, t, "delete", UNO), write(storage, t, "delete")])
    assert in_contents(storage, t) == {TWO: 1}


def test_two_transactions_on_one_row_conflict(storage: Storage, writer: TableWriter) -> None:
    t = table(storage)
    writer.insert(t.name, [ONE])
    mine = [write(storage, t, "delete", ONE), write(storage, t, "place", (1, "mine"))]
    yours = [write(storage, t, "delete", ONE), write(storage, t, "place", (1, "yours"))]
    writer.commit(mine)
    assert refused("PSK-5008", writer, yours).hint == "Nothing was stored; run the transaction again."
    assert in_contents(storage, t) == {(1, "mine"): 1}


def test_a_key_is_never_null(storage: Storage, writer: TableWriter) -> None:
    t = table(storage, columns=(Column("k", "bigint"), Column("v", "string")))
    for action in ("insert", "place"):
        writes = [write(storage, t, action, ONE, (None, "x"))]  # type: ignore[arg-type]
        assert refused("PSK-5006", writer, writes).detail == f"The key column k of {t.name} cannot be NULL."
    with pytest.raises(PenstockError, match="PSK-5003: Row 2, column 'k'"):
        writer.insert(table(storage).name, [ONE, (None, "x")])


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("double", -0.0, math.nan),
        ("decimal(10,2)", Decimal("1.10"), Decimal(2)),
        ("date", date(1, 1, 1), date(9999, 12, 31)),
        ("timestamp", datetime(2020, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)),
        ("array<double>", [0.0, None], []),
        ("struct<a:int,b:array<string>>", {"a": 1, "b": ["x"]}, {"a": None, "b": None}),
    ],
)
def test_keys_of_every_type_are_found_again(
    storage: Storage, writer: TableWriter, kind: str, one: object, other: object
) -> None:
    t = table(storage, columns=(Column("k", kind, nullable=False), Column("v", "bigint")))
    writer.insert(t.name, [(one, 1), (other, 1)])
    writer.insert(t.name, [(one, 2)])
    writer.insert(t.name, [(other, 3), (one, 3), (one, 4)])
    writer.commit([write(storage, t, "insert", (other, 5)), write(storage, t, "delete", (other, 5))])
    writer.commit([write(storage, t, "insert", (other, 6)), write(storage, t, "insert", (other, 7))])
    assert storage.store.snapshot(t.id)[0]["v"].to_pylist() in ([4, 7], [7, 4])


def test_zero_has_one_sign_as_a_key(storage: Storage, writer: TableWriter) -> None:
    t = table(storage, columns=(Column("k", "double", nullable=False), Column("v", "bigint")))
    writer.insert(t.name, [(0.0, 1), (-0.0, 2)])
    assert in_contents(storage, t) == {(0.0, 2): 1}
    writer.insert(t.name, [(-0.0, 3)])
    writer.commit([write(storage, t, "delete", (-0.0, 3)), write(storage, t, "place", (0.0, 4))])
    assert str(storage.store.snapshot(t.id)[0].to_pylist()) == "[{'k': 0.0, 'v': 4}]"
    refused("PSK-5006", writer, [write(storage, t, "place", (-0.0, 5))])


def test_one_commit_goes_into_sources_and_tables(storage: Storage, writer: TableWriter) -> None:
    t, other = table(storage), table(storage, Kind.LOOKUP)
    times = (Column("k", "bigint"), Column("at", "bigint"))
    source = table(storage, Kind.SOURCE, columns=times, watermark=Watermark("at", 10))
    writes = [
        write(storage, source, "insert", (1, 500)),
        write(storage, t, "insert", ONE),
        write(storage, source, "insert", (2, 400), (3, None)),
        write(storage, other, "insert", TWO),
        write(storage, t, "insert", UNO),
    ]
    delta = writer.preview(writes)
    assert {i: added(d) for i, d in delta.items()} == {
        source.id: {(1, 500): 1, (2, 400): 1},
        t.id: {UNO: 1},
        other.id: {TWO: 1},
    }
    lsn = writer.commit(writes)
    assert [storage.log.entries(o.id)[-1].lsn for o in (t, other, source)] == [lsn] * 3
    assert in_log(storage, source) == {(1, 500): 1, (2, 400): 1} and storage.log.watermark(source.id) == 490
    assert in_contents(storage, t) == {UNO: 1} and in_contents(storage, other) == {TWO: 1}


def test_what_cannot_be_written_is_refused(storage: Storage, writer: TableWriter) -> None:
    fed = table(storage, Kind.LOOKUP, connector=Connector("postgres"))
    cases = {"nobody": "PSK-1002", table(storage, Kind.VIEW).name: "PSK-5005", fed.name: "PSK-5005"}
    for name, code in cases.items():
        with pytest.raises(PenstockError) as error:
            writer.insert(name, [ONE])
        assert error.value.code == code
    assert "REFRESH LOOKUP TABLE" in str(error.value.hint)
    with pytest.raises(PenstockError, match="PSK-1004"):
        writer.insert(table(storage).name, {"k": 1, "w": "x"})


@pytest.mark.parametrize("kind", [Kind.TABLE, Kind.SOURCE])
def test_writes_into_what_was_dropped_are_refused(storage: Storage, writer: TableWriter, kind: Kind) -> None:
    kept, gone = table(storage), table(storage, kind)
    writes = [write(storage, kept, "insert", ONE), write(storage, gone, "insert", ONE)]
    drop(storage, gone)
    refused("PSK-1002", writer, writes)
    assert not in_contents(storage, kept)


def test_an_object_that_is_dropped_while_it_is_read_is_refused_as_dropped(
    storage: Storage, writer: TableWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = table(storage)
    lookup = storage.store.lookup

    def late(name_id: int, keys: pa.Table) -> pa.Table:
        if storage.catalog.has_id(t.id):
            drop(storage, t)
        return lookup(name_id, keys)

    monkeypatch.setattr(storage.store, "lookup", late)
    with pytest.raises(PenstockError, match="PSK-1002"):
        writer.insert(t.name, [ONE, TWO])


def test_a_damaged_table_takes_nothing_that_depends_on_its_rows(storage: Storage, writer: TableWriter) -> None:
    t, bag = table(storage), table(storage, key=())
    for o in (t, bag):
        writer.insert(o.name, [ONE])
        storage.damage[o.id] = fail("PSK-6004", "damaged")
    refused("PSK-6004", writer, [write(storage, t, "insert", TWO)])
    refused("PSK-6004", writer, [write(storage, t, "place", TWO)])
    refused("PSK-6004", writer, [write(storage, t, "delete", ONE)])
    refused("PSK-6004", writer, [write(storage, bag, "delete", ONE)])
    # Rows that replace nothing are added whatever is there.
    writer.insert(bag.name, [TWO])
    assert in_log(storage, bag) == {ONE: 1, TWO: 1}
    for o in (t, bag):
        drop(storage, o)


def test_a_fresh_delete_is_not_looked_up_again(
    storage: Storage, writer: TableWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = table(storage)
    writer.insert(t.name, [ONE, TWO])
    with writer.alone([t]), monkeypatch.context() as patch:
        patch.setattr(storage.store, "lookup", None)
        writer.commit([write(storage, t, "delete", ONE)], fresh=True)
    assert in_contents(storage, t) == {TWO: 1}


@dataclass
class Model:
    """Rows of a table with or without a key, as a statement of SQL would see them."""

    keyed: bool
    rows: Rows

    def after(self, writes: list[tuple[Action, list[Row]]]) -> Rows | str:
        """The rows after a transaction, or the code that it is refused with."""
        now: Rows = Counter(self.rows)
        for action, rows in writes:
            if action == "delete":
                if any(now[r] < n for r, n in Counter(rows).items()):
                    return "PSK-5008"
                now.subtract(rows)
            elif self.keyed:
                met = {r[0] for r, n in now.items() if n}
                if action == "place" and (len({r[0] for r in rows}) < len(rows) or met & {r[0] for r in rows}):
                    return "PSK-5006"
                last = {r[0]: r for r in rows}
                now = Counter({r: n for r, n in now.items() if r[0] not in last})
                now.update(last.values())
            else:
                now.update(rows)
            now = +now
        return now


ROWS = st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["a", "b", None])), max_size=3)
ACTIONS = st.sampled_from(["insert", "insert", "place", "delete"])
WRITES = st.lists(st.tuples(ACTIONS, ROWS), min_size=1, max_size=4)


@settings(max_examples=times(5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keyed=st.booleans(), transactions=st.lists(WRITES, max_size=5))
@example(keyed=True, transactions=[[("insert", [(1, "a"), (1, "b")]), ("delete", [(1, "b")]), ("place", [(1, None)])]])
def test_any_transactions_leave_what_a_model_has(
    storage: Storage, writer: TableWriter, keyed: bool, transactions: list[list[tuple[Action, list[Row]]]]
) -> None:
    t = table(storage, key=("k",) if keyed else ())
    model = Model(keyed, Counter())
    for transaction in transactions:
        writes = [write(storage, t, action, *rows) for action, rows in transaction]
        after = model.after(transaction)
        if isinstance(after, str):
            refused(after, writer, writes)
        else:
            change = added(writer.preview(writes)[t.id])
            assert change == {r: n for r in {*after, *model.rows} if (n := after[r] - model.rows[r])}
            writer.commit(writes)
            assert all(abs(n) == 1 or not keyed for n in change.values())
            model.rows = after
    assert in_contents(storage, t) == in_log(storage, t) == model.rows
    drop(storage, t)
