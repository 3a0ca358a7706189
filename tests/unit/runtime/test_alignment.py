"""Sources of one watermark group wait for each other. Event times are milliseconds; the group `g` allows a drift of 10."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import effort
from tests.unit.connect.test_websocket import server
from tests.unit.runtime.engines import Database, database
from tests.unit.runtime.storing import drop, eventually, fresh, in_log, make, opened, together
from tests.unit.runtime.striking import at_every_line
from websockets.sync.server import ServerConnection

from penstock.api.database import Transaction
from penstock.api.source import SourceHandle
from penstock.catalog.objects import Column, Kind, ObjectInfo, Watermark
from penstock.errors import PenstockError
from penstock.log import Part
from penstock.runtime.statements.inspect import ObjectStatus, status
from penstock.runtime.storage.alignment import Ahead
from penstock.runtime.storage.storage import Storage
from penstock.runtime.storage.writes import TableWriter

GROUP = {"watermark_group": "g", "max_drift": "10 milliseconds", "max_future_skew": "off"}
COLUMNS = (Column("k", "bigint"), Column("ts", "bigint"))


def source(name: str, *, columns: str = "k BIGINT, ts BIGINT, WATERMARK FOR ts", feed: str = "", **options: str) -> str:
    with_ = ", ".join(f"{k} = '{v}'" for k, v in (GROUP | options).items())
    return f"CREATE SOURCE {name} ({columns}) {feed} WITH ({with_});"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks again without a reason. A source is idle soon."""
    monkeypatch.setattr("penstock.runtime.storage.alignment._LOOK_S", 3600.0)
    monkeypatch.setattr("penstock.runtime.ticker._TICK_S", 0.02)


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    with database(tmp_path, monkeypatch) as made:
        yield made


def put(db: Database, name: str, *times: int) -> None:
    db.insert(name, *[(0, t) for t in times])


def times(db: Database, name: str) -> list[int]:
    info = db.engine.catalog.get(name)
    assert info is not None
    return sorted(row[1] for row in in_log(db.engine.storage, info).elements())


def mark(db: Database, name: str, ts: int) -> None:
    """Moves the watermark by hand."""
    SourceHandle(db.engine, db.engine.writer.target(name)).watermark(ts)


def shown(db: Database, name: str) -> ObjectStatus:
    return next(s for s in status(db.engine) if s.name == name)


def refused(work: Callable[[], object], code: str = "PSK-5014") -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        work()
    assert caught.value.code == code, caught.value
    return caught.value


class Waiting:
    """A thread that works, and what came of it."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.error: BaseException | None = None

        def run() -> None:
            try:
                work()
            except BaseException as error:
                self.error = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def done(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive(), "it waits on"
        if self.error is not None:
            raise self.error


@contextmanager
def waiting(db: Database, name: str, work: Callable[[], object]) -> Iterator[Waiting]:
    """Works on a thread that is held at a source when the block begins, and has ended when it ends."""
    made = Waiting(work)
    eventually(lambda: shown(db, name).state == "paused", f"{name} is not held")
    yield made
    made.done()
    assert shown(db, name).state != "paused" if db.engine.catalog.get(name) else True


def apart(db: Database, **options: str) -> None:
    """`a` is at 100 and `b` at 50."""
    db.run(source("a", **options) + source("b"))
    put(db, "b", 50)
    put(db, "a", 40, 60)
    put(db, "a", 100)


# Options


@pytest.mark.parametrize(
    ("statement", "code", "text"),
    [
        ("CREATE SOURCE s (ts BIGINT, WATERMARK FOR ts) WITH (max_drift = '1 second')", "PSK-1012", "watermark_group"),
        ("CREATE SOURCE s (ts BIGINT, WATERMARK FOR ts) WITH (on_drift = 'warn')", "PSK-1012", "watermark_group"),
        (
            "CREATE SOURCE s (ts BIGINT, WATERMARK FOR ts) WITH (watermark_group = 'x')",
            "PSK-1012",
            "max_drift = '10 seconds'",
        ),
        (source("s", watermark_group=" "), "PSK-1011", "empty"),
        (source("s", max_drift="soon"), "PSK-1011", "duration"),
        (source("s", max_drift="-1 second"), "PSK-1011", "negative"),
        (source("s", max_drift="1 month"), "PSK-1011", "duration"),
        (source("s", on_drift="stop"), "PSK-1011", "pause, reject, warn"),
        (source("s", columns="k BIGINT"), "PSK-1012", "WATERMARK FOR"),
        (source("s", columns="ts TIMESTAMP, WATERMARK FOR ts AS PROCTIME()"), "PSK-1012", "event time"),
        (source("s", feed="FROM WEBSOCKET (url = 'ws://h')", on_drift="REJECT"), "PSK-1012", "'pause' or 'warn'"),
        ("CREATE TABLE t (k BIGINT PRIMARY KEY) WITH (watermark_group = 'x')", "PSK-1010", "retain_history"),
    ],
)
def test_options_that_could_not_be_carried_out_are_refused(db: Database, statement: str, code: str, text: str) -> None:
    before = db.state()
    assert text in str(refused(lambda: db.run(statement), code))
    assert db.state() == before


def test_the_members_of_a_group_agree(db: Database) -> None:
    db.run(source("a") + source("b", max_drift="0.01 seconds", watermark_group="G"))
    error = refused(lambda: db.run(source("c", max_drift="11 milliseconds")), "PSK-1011")
    assert "source a of watermark group 'g' has '10 milliseconds'" in str(error)
    refused(lambda: db.run(source("b", max_drift="1 second").replace("CREATE", "CREATE OR REPLACE")), "PSK-1011")
    db.run(source("c", max_drift="1 second", watermark_group="other"))
    # The last member may say something else.
    db.run("DROP SOURCE a")
    db.run(source("b", max_drift="1 second").replace("CREATE", "CREATE OR REPLACE"))


def test_the_options_are_shown(db: Database) -> None:
    db.run(source("a", on_drift="warn") + source("b"))
    assert "on_drift = 'warn'" in db.run("SHOW CREATE SOURCE a").to_pylist()[0]["statement"]
    facts = {r["column"]: r["type"] for r in db.run("DESCRIBE EXTENDED a").to_pylist()}
    assert facts["# watermark group"] == "g" and facts["# max drift"] == "10 milliseconds"
    assert facts["# on drift"] == "warn" and facts["# drift ms"] == "0"
    facts = {r["column"]: r["type"] for r in db.run("DESCRIBE EXTENDED b").to_pylist()}
    assert facts["# on drift"] == "pause"


# The rule


def test_rows_are_judged_by_the_watermark_before_them(db: Database) -> None:
    db.run(source("a", on_drift="reject") + source("b", on_drift="reject") + source("c", watermark_group="other"))
    put(db, "a", 1)
    put(db, "a", 5000)  # b has no watermark: it holds nobody.
    put(db, "b", 0)
    refused(lambda: put(db, "a", 5001))
    refused(lambda: put(db, "a", 1))  # Older rows wait with it.
    put(db, "b", 4990)  # The slowest is never held, however much it brings.
    put(db, "a", 9000)  # 10 ahead is not more than 10, whatever comes.
    refused(lambda: put(db, "a", 9001))
    put(db, "b", 4991)
    put(db, "c", 1_000_000)  # A group of its own.
    put(db, "b", 9010)
    put(db, "b", 9010)
    put(db, "a", 9000)
    assert times(db, "a") == [1, 5000, 9000, 9000] and times(db, "b") == [0, 4990, 4991, 9010, 9010]
    assert (shown(db, "a").rows, shown(db, "b").rows) == (4, 5)


@pytest.mark.parametrize("span", [1, 10, 11, 1000])
def test_a_producer_of_both_sources_is_never_held_if_its_rounds_are_level(db: Database, span: int) -> None:
    """Whatever a round spans, and if one source stays behind by as much as is allowed."""
    db.run(source("a", on_drift="reject") + source("b", on_drift="reject"))
    for end in range(span, 6 * span, span):
        put(db, "a", end - span, end)
        put(db, "b", end - span, end - 10)


def test_a_watermark_by_hand_is_not_held(db: Database) -> None:
    apart(db, on_drift="reject")
    mark(db, "a", 200)
    mark(db, "b", 190)
    put(db, "a", 300)


def test_times_before_1970(db: Database) -> None:
    db.run(source("a", on_drift="reject") + source("b"))
    put(db, "b", -50)
    put(db, "a", 0)
    assert "0.05 s ahead of b" in str(refused(lambda: put(db, "a", 1)))
    with_both = Transaction(db.engine)
    with_both.insert("a", [(0, 10)])
    with_both.insert("b", [(0, 0)])
    with_both._commit()


# What is done about it


def test_rows_are_refused_after_a_while(db: Database) -> None:
    apart(db)
    db.run("SET engine.drift_timeout_ms = 20")
    head = db.engine.log.head
    error = refused(lambda: put(db, "a", 101))
    assert error.detail == "a is 0.05 s ahead of b; watermark group 'g' allows 0.01 s. It has waited 0.02 s."
    for way in ("db.source('b').watermark(t)", "idle_timeout", "on_drift = 'warn'", "engine.drift_timeout_ms"):
        assert way in str(error)
    assert db.engine.log.head == head and shown(db, "a").state == "ready"
    assert shown(db, "a").drift_ms == 50 and shown(db, "a").held_back_by == "b"
    assert shown(db, "b").drift_ms == 0 and shown(db, "b").held_back_by is None


def test_rejected_rows_are_refused_at_once(db: Database) -> None:
    apart(db, on_drift="Reject")
    error = refused(lambda: put(db, "a", 101))
    assert error.detail == "a is 0.05 s ahead of b; watermark group 'g' allows 0.01 s."
    assert shown(db, "a").rows == 3
    put(db, "b", 90)
    put(db, "a", 101)


def test_a_warning(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "penstock.runtime.storage.alignment")
    apart(db, on_drift="warn")
    put(db, "a", 101)
    put(db, "a", 102)
    warning = "a is 0.052 s ahead of b; watermark group 'g' allows 0.01 s."
    assert shown(db, "a").warning == warning and shown(db, "a").held_back_by is None
    assert len(caplog.records) == 1 and "a is 0.05 s ahead of b" in caplog.text
    rows = {r["name"]: r for r in db.run("SHOW SOURCES").to_pylist()}
    assert rows["a"]["warning"] == warning and rows["a"]["drift_ms"] == 52
    put(db, "b", 100)
    assert shown(db, "a").warning is None
    put(db, "a", 120)
    put(db, "a", 121)
    assert len(caplog.records) == 2


# What ends a wait


def test_rows_wait_until_the_others_have_caught_up(db: Database) -> None:
    apart(db)
    with waiting(db, "a", lambda: put(db, "a", 101)):
        rows = {r["name"]: r for r in db.run("SHOW SOURCES").to_pylist()}
        assert (rows["a"]["state"], rows["a"]["held_back_by"], rows["a"]["drift_ms"]) == ("paused", "b", 50)
        put(db, "b", 89)
        assert shown(db, "a").state == "paused" and times(db, "a") == [40, 60, 100]
        put(db, "b", 90)
    assert times(db, "a") == [40, 60, 100, 101]


def test_a_watermark_by_hand_ends_a_wait(db: Database) -> None:
    apart(db)
    with waiting(db, "a", lambda: put(db, "a", 101)):
        mark(db, "b", 95)
    assert times(db, "a") == [40, 60, 100, 101]


@pytest.mark.parametrize("running", [True, False])
def test_an_idle_source_is_not_waited_for(db: Database, running: bool) -> None:
    db.run(source("a") + source("b", idle_timeout="200 milliseconds"))
    if running:
        db.run("START PIPELINE")
    put(db, "b", 50)
    put(db, "a", 100)
    put(db, "a", 1000)
    assert times(db, "a") == [100, 1000]
    # A source that comes back is waited for.
    put(db, "b", 60)
    with waiting(db, "a", lambda: put(db, "a", 2000)):
        put(db, "b", 1000)


def test_a_source_that_is_dropped_is_not_waited_for(db: Database) -> None:
    apart(db)
    with waiting(db, "a", lambda: put(db, "a", 101)):
        db.run("DROP SOURCE b")
    assert times(db, "a") == [40, 60, 100, 101] and shown(db, "a").drift_ms == 0


def test_the_source_that_waits_is_dropped(db: Database) -> None:
    apart(db)
    with pytest.raises(PenstockError, match="PSK-1002"), waiting(db, "a", lambda: put(db, "a", 101)):
        db.run("DROP SOURCE a")


def test_the_database_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with database(tmp_path, monkeypatch) as db:
        apart(db)
        work = Waiting(lambda: put(db, "a", 101))
        eventually(lambda: shown(db, "a").state == "paused", "a is not held")
    with pytest.raises(PenstockError, match="PSK-0004"):
        work.done()


def test_the_log_knows_the_watermarks_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with database(tmp_path, monkeypatch) as db:
        apart(db, on_drift="reject")
        db.run(source("c"))
        put(db, "c", 20)
        c = db.engine.writer.target("c")
        db.engine.storage.commit([Part(object_id=c.id, idle=True, column_count=2)])
    with database(tmp_path, monkeypatch) as db:
        assert shown(db, "a").held_back_by == "b"  # Not c, which is idle.
        refused(lambda: put(db, "a", 101))
        put(db, "b", 90)
        put(db, "a", 101)


# Several at once


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
    clocks = {"a": iter(range(7, 10**9, 7)), "b": iter(range(7, 10**9, 7))}

    def produce(name: str) -> Callable[[], None]:
        def run() -> None:
            for _ in range(50):
                put(db, name, next(clocks[name]))

        return run

    together([produce(n) for n in ("a", "b") * 4])
    assert times(db, "a") == times(db, "b") == list(range(0, 7 * 201, 7))
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


# Ctrl-C


def test_ctrl_c_ends_the_wait(db: Database) -> None:
    apart(db)
    head = db.engine.log.head

    def press() -> None:
        eventually(lambda: shown(db, "a").state == "paused", "a is not held")
        os.kill(os.getpid(), signal.SIGINT)

    presser = Waiting(press)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        put(db, "a", 101)
    presser.done()
    assert time.monotonic() - began < 10
    assert db.engine.log.head == head and shown(db, "a").state == "ready"
    put(db, "b", 100)
    put(db, "a", 102)
    assert times(db, "a") == [40, 60, 100, 102]


def test_a_program_that_only_notes_ctrl_c_waits_on(db: Database) -> None:
    apart(db)
    pressed = threading.Event()
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.set())

    def press() -> None:
        eventually(lambda: shown(db, "a").state == "paused", "a is not held")
        os.kill(os.getpid(), signal.SIGINT)
        assert pressed.wait(10)
        put(db, "b", 100)

    try:
        presser = Waiting(press)
        put(db, "a", 101)
        presser.done()
    finally:
        signal.signal(signal.SIGINT, before)
    assert times(db, "a") == [40, 60, 100, 101]


def test_a_wait_that_is_struck_at_any_line_leaves_nothing_behind(db: Database) -> None:
    apart(db)
    db.run("SET engine.drift_timeout_ms = 1")
    db.engine.ticker.stop()
    head = db.engine.log.head

    def work() -> None:
        refused(lambda: put(db, "a", 101))

    outcomes = []
    for interrupted in at_every_line(work, step=3):
        outcomes.append(interrupted)
        assert db.engine.log.head == head and shown(db, "a").state == "ready"
    assert len(outcomes) > 30 and outcomes[-1] is False and all(outcomes[:-1])
    put(db, "b", 100)
    together([lambda: put(db, "a", 101)])


def test_a_writer_keeps_the_rows_of_a_wait_that_was_struck(db: Database) -> None:
    apart(db)
    with SourceHandle(db.engine, db.engine.writer.target("a")).writer(max_delay=1000) as writer:
        writer.write((0, 101))

        def press() -> None:
            eventually(lambda: shown(db, "a").state == "paused", "a is not held")
            os.kill(os.getpid(), signal.SIGINT)

        presser = Waiting(press)
        with pytest.raises(KeyboardInterrupt):
            writer.flush()
        presser.done()
        put(db, "b", 100)
    assert times(db, "a") == [40, 60, 100, 101]


# Time that passes while a source is held


def test_a_source_that_is_held_is_not_idle(db: Database) -> None:
    db.run(
        source("a", idle_timeout="200 milliseconds", columns="k BIGINT, ts BIGINT, WATERMARK FOR ts", watermark_per="k")
        + source("b")
        + source("z", watermark_group="other", idle_timeout="200 milliseconds")
    )
    db.run("START PIPELINE")
    put(db, "b", 50)
    db.insert("a", (1, 100), (2, 900))

    def idle(name: str) -> bool:
        last = db.engine.log.last_entry(db.engine.writer.target(name).id)
        return last is not None and last.idle

    with waiting(db, "a", lambda: db.insert("a", (2, 901))):
        # z has its commit after a, so a would be idle by then.
        put(db, "z", 1)
        eventually(lambda: idle("z"), "z is not idle")
        assert not idle("a") and shown(db, "a").watermark == 100
        put(db, "b", 100)
    assert shown(db, "a").watermark == 100  # Neither was the first value, which had no rows for as long.
    eventually(lambda: idle("a"), "a is not idle")
    assert shown(db, "a").watermark == 901


# Connectors


def feeding(*rows: int) -> Callable[[ServerConnection], None]:
    """Sends a row with each time, one after the other, and then nothing."""

    def handler(connection: ServerConnection) -> None:
        for ts in rows:
            connection.send(f'{{"k": 0, "ts": {ts}}}')
        for _ in connection:
            pass

    return handler


def test_a_connector_is_not_read_on(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.connect.websocket._MAX_BATCH", 1)
    every = range(0, 2000, 5)
    with server(feeding(*every)) as url:
        db.run(source("b"))
        put(db, "b", 0)
        db.run(source("a", feed=f"FROM WEBSOCKET (url = '{url}', format = 'json')"))
        db.run("SET engine.drift_timeout_ms = 1")  # A connector waits for as long as it takes.
        db.run("START PIPELINE")
        eventually(lambda: shown(db, "a").state == "paused", "a is not held")
        assert times(db, "a") == [0, 5, 10, 15] and shown(db, "a").held_back_by == "b"
        assert shown(db, "a").error is None and shown(db, "a").rows == 4
        put(db, "b", 1000)
        eventually(lambda: shown(db, "a").state == "paused" and shown(db, "a").watermark == 1015, "a is not held again")
        assert times(db, "a") == list(range(0, 1016, 5))
        put(db, "b", 10_000)
        eventually(lambda: len(times(db, "a")) == 400, "not all rows came")
        assert times(db, "a") == list(every) and shown(db, "a").state == "connected"
        db.run("DROP SOURCE a")


@pytest.mark.parametrize("how", ["STOP PIPELINE", "close"])
def test_a_connector_that_is_stopped_keeps_what_it_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("penstock.connect.websocket._MAX_BATCH", 1)
    with server(feeding(*range(0, 500, 5))) as url:
        with database(tmp_path, monkeypatch) as db:
            db.run(source("b"))
            put(db, "b", 0)
            db.run(source("a", feed=f"FROM WEBSOCKET (url = '{url}', format = 'json')"))
            db.run("START PIPELINE")
            eventually(lambda: shown(db, "a").state == "paused", "a is not held")
            if how != "close":
                db.run(how)
                assert times(db, "a") == [0, 5, 10, 15, 20]
        with database(tmp_path, monkeypatch) as db:
            assert times(db, "a") == [0, 5, 10, 15, 20]
