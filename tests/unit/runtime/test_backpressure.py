"""Sources that are filled faster than they are read: held, refused or dropped before the commit, and never beyond the limits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.runtime.engines import Database, database
from tests.unit.runtime.storing import eventually, fresh, make, opened

from penstock.api.source import SourceHandle
from penstock.catalog.objects import Connector, Kind, ObjectInfo
from penstock.connect.access import Access
from penstock.errors import PenstockError
from penstock.runtime.connect import intake as intake_module
from penstock.runtime.connect.dropping import DroppingBuffer
from penstock.runtime.connect.intake import Intake
from penstock.runtime.storage.backpressure import Reader
from penstock.runtime.storage.storage import Storage
from penstock.runtime.storage.totals import Counts
from penstock.runtime.storage.writes import TableWriter


class World:
    """A source with one reader, which processes what the test says."""

    def __init__(self, storage: Storage, **options: str) -> None:
        self.storage = storage
        self.info = make(storage, fresh("s"), Kind.SOURCE, options=options)
        self.reached = storage.log.head
        self.writer = TableWriter(storage)
        storage.backpressure.readers = lambda i: [Reader("slow", self.reached)] if i == self.info.id else []

    def insert(self, *keys: int) -> int:
        return self.writer.insert(self.info.name, [(k, "x") for k in keys])

    def catch_up(self) -> None:
        self.reached = self.storage.log.head

    @property
    def rows(self) -> int:
        return self.storage.log.amount(self.info.id)[1]


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    with opened(tmp_path_factory.mktemp("full"), engine={"full_timeout_ms": 0}) as storage:
        yield storage


@pytest.fixture
def patient(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Writers wait a minute."""
    before = storage.settings
    storage.settings = before.model_copy(
        update={"engine": before.engine.model_copy(update={"full_timeout_ms": 60_000})}
    )
    yield
    storage.settings = before


def test_rows_are_refused_at_the_limit_and_accepted_below_it(storage: Storage) -> None:
    w = World(storage, max_pending_rows="3", on_full="reject")
    # A commit of any size is accepted while there is room.
    w.insert(1, 2)
    w.insert(3, 4, 5)
    with pytest.raises(
        PenstockError, match=r"PSK-5020: s\d+ is full: slow has not processed 5 rows \(\d+ bytes\); 3 rows may"
    ):
        w.insert(6)
    assert w.rows == 5
    w.catch_up()
    w.insert(6)
    assert w.rows == 6


def test_bytes_are_limited_too(storage: Storage) -> None:
    w = World(storage, max_pending_bytes="1kb", on_full="reject")
    with pytest.raises(PenstockError, match=r"PSK-5020.*1024 bytes may be pending"):
        [w.insert(k) for k in range(100)]
    size = storage.log.amount(w.info.id)[0]
    assert 1024 <= size < 2048


def test_the_limits_of_the_database_are_those_of_sources_without_any(storage: Storage) -> None:
    before = storage.settings
    storage.settings = before.model_copy(update={"engine": before.engine.model_copy(update={"max_pending_rows": 1})})
    try:
        w = World(storage)
        w.insert(1)
        with pytest.raises(PenstockError, match=r"PSK-5020.*waited 0 s") as refused:
            w.insert(2)
        assert "engine.full_timeout_ms" in str(refused.value.hint)
        World(storage, max_pending_rows="2").insert(1)
    finally:
        storage.settings = before


def test_only_rows_for_a_full_source_are_held(storage: Storage) -> None:
    w = World(storage, max_pending_rows="1")
    other = make(storage, fresh("s"), Kind.SOURCE, options={"max_pending_rows": "1"})
    table = make(storage, fresh("t"))
    w.insert(1)
    w.insert()
    w.writer.insert(other.name, [(1, "x")])
    w.writer.insert(other.name, [(2, "x")])
    part = storage.feed(w.info).part([(2, "x")])
    changed = storage.feed(table).part([(1, "y")])
    # A transaction with a full source stores nothing at all.
    with pytest.raises(PenstockError, match="PSK-5020"):
        w.writer.commit([(table, "insert", changed), (w.info, "insert", part)])
    assert storage.log.epoch(table.id) == 0 and w.rows == 1


def test_of_many_writers_at_once_none_goes_past_the_limit(storage: Storage) -> None:
    w = World(storage, max_pending_rows="10", on_full="reject")
    refused: list[str] = []

    def write(first: int) -> None:
        for k in range(5):
            try:
                w.insert(first + k)
            except PenstockError as error:
                refused.append(error.code)

    threads = [threading.Thread(target=write, args=(i * 10,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert w.rows == 10 and refused == ["PSK-5020"] * 30


@pytest.mark.usefixtures("patient")
def test_a_writer_waits_until_there_is_room(storage: Storage) -> None:
    w = World(storage, max_pending_rows="2")
    w.insert(1, 2)
    done: list[int] = []
    thread = threading.Thread(target=lambda: done.append(w.insert(3)))
    thread.start()
    eventually(lambda: storage.backpressure.holds(w.info.id), "the wait")
    assert not done and w.rows == 2
    w.catch_up()
    thread.join(10)
    assert done == [storage.log.head] and w.rows == 3


@pytest.mark.usefixtures("patient")
def test_closing_ends_the_wait(tmp_path: Path) -> None:
    with opened(tmp_path) as storage:
        w = World(storage, max_pending_rows="1")
        w.insert(1)
        caught: list[str] = []

        def write() -> None:
            try:
                w.insert(2)
            except PenstockError as error:
                caught.append(error.code)

        thread = threading.Thread(target=write)
        thread.start()
        eventually(lambda: storage.backpressure.holds(w.info.id), "the wait")
        storage.backpressure.close()
        thread.join(10)
        assert caught == ["PSK-0004"] and w.rows == 1


# Connectors


class Incoming:
    """A connector that the test feeds."""

    def start(self, insert: Callable[[pa.RecordBatch], None], report: object) -> None:
        self.insert = insert

    def stop(self) -> None: ...

    def send(self, *keys: int) -> None:
        self.insert(pa.RecordBatch.from_pydict({"k": list(keys), "v": ["x"] * len(keys)}))


@pytest.fixture
def incoming(monkeypatch: pytest.MonkeyPatch) -> Incoming:
    made = Incoming()
    monkeypatch.setattr(intake_module, "make_source", lambda connector, columns, access: made)
    return made


def started(w: World) -> Intake:
    with_connector = ObjectInfo(**{**vars(w.info), "connector": Connector("fake")})
    return Intake(w.storage, with_connector, Access())


def keys(w: World) -> list[int]:
    schema = w.storage.feeds[w.info.id].schema
    return [k for e in w.storage.log.entries(w.info.id) for k in w.storage.log.read(e, schema)["k"].to_pylist()]


def test_a_connector_is_not_read_while_its_source_is_full(storage: Storage, incoming: Incoming) -> None:
    w = World(storage, max_pending_rows="2")
    intake = started(w)
    incoming.send(1, 2)
    thread = threading.Thread(target=lambda: incoming.send(3))
    thread.start()
    eventually(lambda: storage.backpressure.holds(w.info.id), "the wait")
    assert thread.is_alive() and keys(w) == [1, 2]
    w.catch_up()
    thread.join(10)
    assert keys(w) == [1, 2, 3]
    incoming.send(4)
    # What was read before a stop is committed, full or not.
    thread = threading.Thread(target=lambda: incoming.send(5))
    thread.start()
    eventually(lambda: storage.backpressure.holds(w.info.id), "the wait")
    intake.stop()
    thread.join(10)
    assert keys(w) == [1, 2, 3, 4, 5] and storage.totals.of(w.info.id).dropped == 0


def test_a_connector_may_drop_its_oldest_rows(storage: Storage, incoming: Incoming) -> None:
    w = World(storage, max_pending_rows="3", on_full="drop_oldest")
    intake = started(w)
    incoming.send(1, 2, 3)
    eventually(lambda: keys(w) == [1, 2, 3], "the first commit")
    incoming.send(4)
    eventually(lambda: storage.backpressure.holds(w.info.id), "the wait")
    for k in (5, 6, 7, 8, 9):
        incoming.send(k)
    # 4 is on its way, and three rows wait.
    assert storage.totals.of(w.info.id).dropped == 2

    def caught_up() -> bool:
        w.catch_up()
        return keys(w)[-1] == 9

    eventually(caught_up, "the rest")
    assert keys(w) == [1, 2, 3, 4, 7, 8, 9]
    incoming.send(*range(10, 20))
    intake.stop()
    assert keys(w)[-3:] == [17, 18, 19] and storage.totals.of(w.info.id).dropped == 9


def test_an_error_of_a_commit_reaches_the_connector() -> None:
    def broken(batch: pa.RecordBatch, position: str | None) -> None:
        raise ValueError("no")

    buffer = DroppingBuffer("b", 5, broken, Counts())
    batch = pa.RecordBatch.from_pydict({"k": [1]})
    buffer.push(batch)
    eventually(lambda: buffer.error is not None, "the error")
    with pytest.raises(ValueError, match="no"):
        buffer.push(batch)
    buffer.stop()


# Statements


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with pytest.MonkeyPatch.context() as patch, database(tmp_path_factory.mktemp("db"), patch) as db:
        db.engine.start()
        yield db


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("max_pending_rows = 0", "PSK-1011"),
        ("max_pending_rows = 'many'", "PSK-1011"),
        ("max_pending_bytes = '3 apples'", "PSK-1011"),
        ("on_full = 'explode', max_pending_rows = 1", "PSK-1011"),
        ("on_full = 'block'", "PSK-1012"),
        ("on_full = 'drop_oldest', max_pending_rows = 1", "PSK-1012"),
    ],
)
def test_options_that_cannot_be_honoured_are_refused(db: Database, options: str, code: str) -> None:
    with pytest.raises(PenstockError, match=code):
        db.run(f"CREATE SOURCE x (k BIGINT) WITH ({options})")


@pytest.mark.parametrize("options", ["on_full = 'reject', max_pending_rows = 1", "on_full = 'drop_oldest', max_pending_bytes = '1mb'"])  # fmt: skip
def test_options_that_a_connector_cannot_honour_are_refused(db: Database, options: str) -> None:
    with pytest.raises(PenstockError, match="PSK-1012"):
        db.run(f"CREATE SOURCE x (k BIGINT) FROM WEBSOCKET (url = 'ws://127.0.0.1:9') WITH ({options})")


def shown(db: Database, name: str) -> dict[str, Any]:
    return next(r for r in db.run("SHOW SOURCES").to_pylist() if r["name"] == name)


def test_what_is_pending_is_shown(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.run(
        "CREATE SOURCE s (k BIGINT) WITH (max_pending_rows = 10, on_full = 'reject'); CREATE STREAM t AS SELECT k FROM s"
    )
    info = db.engine.catalog.get("s")
    assert info is not None
    handle = SourceHandle(db.engine, info)
    before = db.engine.log.head
    for k in range(5):
        handle.insert([(k,)])
    eventually(lambda: handle.pending == 0, "the query")
    assert (handle.capacity, handle.utilization, handle.is_backpressured) == (10, 0.0, False)
    # As if the query had stood still.
    monkeypatch.setattr(db.engine.storage.backpressure, "readers", lambda i: [Reader("t", before)])
    assert (handle.pending, handle.utilization, handle.is_backpressured) == (5, 0.5, False)
    for k in range(5):
        handle.insert([(k,)])
    assert handle.is_backpressured
    with pytest.raises(PenstockError, match="PSK-5020: s is full: t has not processed 10 rows"):
        handle.insert([(9,)])
    row = shown(db, "s")
    assert (row["pending_rows"], row["utilization"], row["dropped_rows"]) == (10, 1.0, 0)
    assert row["warning"] == "It is full: t is behind."
    db.run("CREATE SOURCE u (k BIGINT)")
    assert shown(db, "u")["utilization"] is None


def test_queries_that_do_not_run_hold_nobody(db: Database) -> None:
    db.run(
        "CREATE SOURCE a (k BIGINT) WITH (max_pending_rows = 2, on_full = 'reject'); CREATE STREAM b AS SELECT k FROM a"
    )
    db.engine.stop()
    for k in range(5):
        db.insert("a", (k,))
    # What was committed before a query was started does not count for it.
    db.engine.start()
    db.insert("a", (5,))
    db.engine.flush(timeout=10)
    info = db.engine.catalog.get("a")
    assert info is not None and SourceHandle(db.engine, info).pending == 0
