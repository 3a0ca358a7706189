from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.runtime.storing import Row, Rows, added, make, part

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.errors import PenstockError, fail
from penstock.runtime.statements.session import Session
from penstock.runtime.statements.visible import visible, written
from penstock.runtime.storage.storage import Storage
from penstock.runtime.storage.writes import Action, TableWriter

ONE, TWO = (1, "one"), (2, "two")


def session(storage: Storage) -> Session:
    """A session on as much of an engine as reading needs."""
    engine: Any = SimpleNamespace(storage=storage, writer=TableWriter(storage), lookups={})
    return Session(engine)


def write(s: Session, info: ObjectInfo, action: Action, *rows: Row) -> None:
    assert s.pending is not None
    s.pending.append((info, action, s.engine.storage.feed(info).part(list(rows))))


def seen(s: Session, *objects: ObjectInfo) -> dict[str, Rows]:
    return {name: added(rows) for name, rows in visible(s, objects).items()}


def test_a_transaction_sees_its_own_writes_and_others_do_not(storage: Storage) -> None:
    t, source = make(storage, "t"), make(storage, "s", Kind.SOURCE)
    mine, yours = session(storage), session(storage)
    mine.writer.insert("t", [ONE, TWO])
    mine.writer.insert("s", [ONE])
    mine.pending = []
    before = {"t": {ONE: 1, TWO: 1}, "s": {ONE: 1}}
    assert seen(mine, t, source) == seen(yours, t, source) == before
    assert not written(mine, t)

    write(mine, t, "insert", (1, "uno"), (3, "three"))
    write(mine, t, "delete", TWO)
    write(mine, source, "insert", ONE, TWO)
    assert written(mine, t) and written(mine, source) and not written(yours, t)
    assert seen(mine, t, source) == {"t": {(1, "uno"): 1, (3, "three"): 1}, "s": {ONE: 2, TWO: 1}}
    assert seen(mine, t) == {"t": {(1, "uno"): 1, (3, "three"): 1}}
    assert seen(yours, t, source) == before

    # What others commit meanwhile is seen too, under the own writes.
    yours.writer.insert("t", [(4, "four"), (1, "une")])
    assert seen(mine, t) == {"t": {(1, "uno"): 1, (3, "three"): 1, (4, "four"): 1}}
    mine.writer.commit(mine.pending)
    mine.pending = None
    assert seen(mine, t, source) == seen(yours, t, source)
    assert seen(yours, t) == {"t": {(1, "uno"): 1, (3, "three"): 1, (4, "four"): 1}}


def test_a_transaction_that_cannot_be_committed_any_more_says_so_when_it_reads(storage: Storage) -> None:
    t = make(storage, "t")
    s = session(storage)
    s.writer.insert("t", [ONE])
    s.pending = []
    write(s, t, "delete", ONE)
    assert seen(s, t) == {"t": Counter()}
    s.writer.insert("t", [(1, "uno")])
    with pytest.raises(PenstockError, match="PSK-5008"):
        visible(s, [t])


def test_types_and_names_of_what_is_seen_are_those_of_the_object(storage: Storage) -> None:
    t = make(storage, "t")
    s = session(storage)
    plain = visible(s, [t])["t"].schema
    s.pending = []
    write(s, t, "insert", ONE)
    assert visible(s, [t])["t"].schema == plain


def test_a_view_shows_what_is_committed(storage: Storage) -> None:
    t, view = make(storage, "t"), make(storage, "v", Kind.VIEW)
    storage.commit([part(view, (*ONE, 2))])
    s = session(storage)
    s.pending = []
    write(s, t, "insert", ONE)
    assert seen(s, t, view) == {"t": {ONE: 1}, "v": {ONE: 2}}


def test_what_cannot_be_known_is_refused(storage: Storage) -> None:
    stream, append = make(storage, "s", Kind.STREAM), make(storage, "a", Kind.STREAM, changelog=False)
    sink, view = make(storage, "k", Kind.SINK), make(storage, "v", Kind.VIEW)
    s = session(storage)
    for _ in range(2):
        storage.commit([part(stream, (*ONE, 1)), part(append, ONE), part(view, (*ONE, 1))])
    assert seen(s, stream, append) == {"s": {ONE: 2}, "a": {ONE: 2}}
    storage.log.trim({o.id: storage.log.head - 1 for o in (stream, append)})
    # Of an append-only stream the retained rows are shown; a changelog without its beginning adds up to nothing.
    assert seen(s, append) == {"a": {ONE: 1}}
    storage.damage[view.id] = fail("PSK-6004", "damaged")
    for info, code in ((stream, "PSK-5011"), (sink, "PSK-1008"), (view, "PSK-6004")):
        with pytest.raises(PenstockError) as refused:
            visible(s, [info])
        assert refused.value.code == code


def test_an_on_demand_lookup_table_is_read_at_its_source(storage: Storage) -> None:
    lookup = make(storage, "d", Kind.LOOKUP, options={"strategy": "on-demand"})
    s = session(storage)
    rows = pa.table({"k": [7], "v": ["seven"]})
    s.engine.lookups[lookup.id] = SimpleNamespace(read_all=lambda: rows)  # type: ignore[assignment]
    assert seen(s, lookup) == {"d": {(7, "seven"): 1}}
