from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.runtime.storing import drop, in_contents, make, opened, part

from penstock.catalog.objects import Kind, ObjectInfo, Role
from penstock.errors import PenstockError, fail
from penstock.log import writer as log_writer
from penstock.runtime import retention as retention_module
from penstock.runtime.lifecycle import JobState, State
from penstock.runtime.retention import HISTORY, Floor, Retention
from penstock.runtime.storage.backpressure import Full
from penstock.runtime.storage.scrub import Scrub
from penstock.runtime.storage.storage import Storage
from penstock.runtime.ticker import Ticker

SEGMENT = 4096


class Job:
    """Stands in for a job that has come to an LSN."""

    def __init__(self, lsn: int, state: JobState = JobState.RUNNING, failed_at: float = 0.0) -> None:
        self.state = state
        self.failed_at = failed_at
        self.kernel = SimpleNamespace(durable_lsn=lsn)


class Jobs:
    """Stands in for the jobs of an engine. `refused`: queries that could not be started, and since when."""

    def __init__(self) -> None:
        self.by_object: dict[int, Job] = {}
        self.refused: dict[int, float] = {}
        self.released: set[int] = set()

    def release(self, info: ObjectInfo) -> None:
        self.released.add(info.id)

    def trouble(self, info: ObjectInfo) -> Any:
        job = self.by_object.get(info.id)
        if info.id in self.refused:
            return SimpleNamespace(state="failed", since=self.refused[info.id])
        if job is None:
            return SimpleNamespace(state="stopped", since=0.0)
        if job.state in (JobState.FAILED, JobState.RETRYING):
            return SimpleNamespace(state=job.state.value, since=job.failed_at)
        return None


class Engine:
    """As much of an engine as retention needs."""

    def __init__(self, storage: Storage) -> None:
        self.storage, self.catalog, self.log = storage, storage.catalog, storage.log
        self.settings = storage.settings
        self.jobs = Jobs()
        self.sinks: dict[int, Any] = {}
        self.running = True
        self.ddl = threading.RLock()
        self.lifecycle = SimpleNamespace(state=State.RUNNING)
        self.trimmed: list[tuple[int, int]] = []
        storage.index = SimpleNamespace(  # type: ignore[assignment]
            trim=lambda i, lsn: self.trimmed.append((i, lsn)), add=lambda *_: None, forget=lambda _: None
        )

    def owner(self, info: ObjectInfo) -> ObjectInfo:
        return self.catalog.by_id(info.owner_id) if info.owner_id is not None else info


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    log = {"segment_bytes": SEGMENT, "retain_bytes": 0}
    with opened(tmp_path_factory.mktemp("retention"), log=log, engine={"release_failed_ms": 60_000}) as storage:
        yield storage


@pytest.fixture
def engine(storage: Storage) -> Iterator[Engine]:
    yield Engine(storage)
    for info in reversed(storage.catalog.objects()):
        drop(storage, info)


def floor(engine: Any, info: ObjectInfo) -> Floor:
    retention = Retention(engine)
    retention.look(info)
    return retention.floors[info.id]


def filled(storage: Storage, name: str = "s", kind: Kind = Kind.SOURCE, count: int = 5, **more: Any) -> ObjectInfo:
    """An object with some entries of the same size."""
    info = make(storage, name, kind, **more)
    for i in range(count):
        storage.commit([part(info, (i, "x", 1) if info.changelog else (i, "x"))])
    return info


def lsns(storage: Storage, info: ObjectInfo) -> list[int]:
    return [e.lsn for e in storage.log.entries(info.id)]


def test_history_is_kept_by_size(engine: Engine) -> None:
    storage = engine.storage
    size = storage.log.entries(filled(storage, "probe", count=1).id)[0].length
    for kept, limit in ((0, 0), (0, size - 1), (1, size), (3, 4 * size - 1), (5, 5 * size), (5, 1 << 30)):
        info = filled(storage, f"s{kept}_{limit}", options={"retain_history": f"{limit}b"})
        own = lsns(storage, info)
        assert floor(engine, info) == Floor(0 if kept == 5 else own[4 - kept], HISTORY)
    # Where the statement says nothing the setting counts.
    info = filled(storage)
    assert floor(engine, info) == Floor(lsns(storage, info)[-1], HISTORY)


def test_history_is_kept_by_age(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = engine.storage
    start = 1_700_000_000
    clock = SimpleNamespace(now=start)
    stopped = SimpleNamespace(time=lambda: clock.now, time_ns=lambda: clock.now * 10**9, monotonic=time.monotonic)
    monkeypatch.setattr(retention_module, "time", stopped)
    monkeypatch.setattr(log_writer, "time", stopped)
    info = make(storage, "s", Kind.SOURCE, options={"retain_history": "30 seconds"})
    for i in range(5):
        clock.now = start + 10 * i
        storage.commit([part(info, (i, "x"))])
    own = lsns(storage, info)
    for later, gone in ((40, 1), (50, 2), (69, 4), (70, 4), (71, 5), (30, 0), (-100, 0)):
        clock.now = start + later
        assert floor(engine, info) == Floor(own[gone - 1] if gone else 0, HISTORY)


def test_a_job_that_lags_holds_what_it_has_not_read(engine: Engine) -> None:
    storage = engine.storage
    source = filled(storage)
    own = lsns(storage, source)
    fast = make(storage, "fast", Kind.VIEW, depends_on=(source.id,))
    slow = make(storage, "slow", Kind.STREAM, depends_on=(source.id,))
    late = make(storage, "late", Kind.STREAM, depends_on=(source.id,), role=Role.LATE_ROWS, owner_id=slow.id)
    # Nobody knows where a query is that does not run.
    assert floor(engine, source) == Floor(0, "materialized view fast")
    engine.jobs.by_object = {fast.id: Job(own[3]), slow.id: Job(own[1])}
    assert floor(engine, source) == Floor(own[1], "stream slow")
    engine.jobs.by_object[slow.id] = Job(own[1], JobState.RETRYING, time.time() - 1000)
    assert floor(engine, source) == Floor(own[1], "stream slow")
    engine.jobs.by_object[slow.id] = Job(storage.log.head)
    assert floor(engine, source) == Floor(own[3], "materialized view fast")
    engine.jobs.by_object[fast.id] = Job(storage.log.head)
    assert floor(engine, source) == Floor(own[4], HISTORY)
    # A job that stands below the history is no matter: the history reaches further back.
    kept = filled(storage, "kept", options={"retain_history": "1gb"})
    make(storage, "reader", Kind.VIEW, depends_on=(kept.id,))
    assert floor(engine, kept) == Floor(0, HISTORY)
    assert engine.catalog.has_id(late.id)


def test_a_hidden_query_is_named_by_its_owner(engine: Engine) -> None:
    storage = engine.storage
    source = filled(storage)
    view = make(storage, "v", Kind.VIEW)
    make(storage, "__probe_0_v", Kind.STREAM, depends_on=(source.id,), role=Role.PROBE, owner_id=view.id)
    assert floor(engine, source) == Floor(0, "stream v")


def test_a_failed_query_holds_the_log_for_a_while(engine: Engine) -> None:
    storage = engine.storage
    source = filled(storage)
    own = lsns(storage, source)
    view = make(storage, "v", Kind.VIEW, depends_on=(source.id,))
    engine.jobs.by_object[view.id] = Job(own[0], JobState.FAILED, time.time() - 59)
    assert floor(engine, source) == Floor(own[0], "materialized view v") and engine.jobs.released == set()
    # It is made again from the beginning when it is restarted, so its checkpoint goes.
    engine.jobs.by_object[view.id] = Job(own[0], JobState.FAILED, time.time() - 61)
    assert floor(engine, source) == Floor(own[4], HISTORY) and engine.jobs.released == {view.id}


def test_a_stopped_query_holds_the_log_and_is_named(engine: Engine) -> None:
    """It continues where it stopped; `log.max_bytes` bounds what it holds."""
    storage = engine.storage
    source = filled(storage)
    own = lsns(storage, source)
    view = make(storage, "v", Kind.VIEW, depends_on=(source.id,))
    engine.jobs.by_object[view.id] = Job(own[0], JobState.STOPPED, time.time() - 100_000)
    assert floor(engine, source) == Floor(own[0], "materialized view v")


def test_a_log_that_a_stopped_query_holds_takes_no_more_than_its_limit(tmp_path: Path) -> None:
    # The segment that is written has a megabyte in reserve.
    log = {"segment_bytes": SEGMENT, "retain_bytes": 0, "max_bytes": (1 << 20) + 5 * SEGMENT}
    with opened(tmp_path, log=log) as storage:
        engine: Any = Engine(storage)
        source, other = make(storage, "s", Kind.SOURCE), make(storage, "t")
        view = make(storage, "v", Kind.VIEW, depends_on=(source.id,))
        engine.jobs.by_object[view.id] = Job(0, JobState.STOPPED)
        ticks = ticker(engine)
        while storage.log.size <= storage.settings.log.max_bytes:
            storage.commit([part(source, (1, "x" * SEGMENT))])
        written = len(lsns(storage, source))
        with pytest.raises(Full, match=r"PSK-5013.*log.max_bytes allows") as full:
            storage.commit([part(source, (0, ""))])
        assert full.value.waits and storage.crowded.is_set()
        for _ in range(2):
            storage.feed(source)
            ticks.trim()
        for info in (source, other):
            with pytest.raises(PenstockError, match=r"PSK-5013.*most of it is held by materialized view v"):
                storage.feed(info)
        with pytest.raises(Full) as full:
            storage.commit([part(source, (0, ""))])
        assert not full.value.waits
        assert len(lsns(storage, source)) == written
        # When the query has read them, rows are taken again.
        engine.jobs.by_object[view.id] = Job(storage.log.head)
        ticks.trim()
        storage.feed(source)
        assert lsns(storage, source) == []


def test_a_writer_that_is_faster_than_the_ticker_waits_for_room_in_the_log(tmp_path: Path) -> None:
    log = {"segment_bytes": SEGMENT, "retain_bytes": 0, "max_bytes": (1 << 20) + 5 * SEGMENT}
    with opened(tmp_path, log=log) as storage:
        engine: Any = Engine(storage)
        source = make(storage, "s", Kind.SOURCE)
        ticks = ticker(engine)

        def tick() -> None:
            while ticks._waited():
                pass

        thread = threading.Thread(target=tick)
        thread.start()
        try:
            for i in range(50):
                storage.when_level(lambda i=i: storage.commit([part(source, (i, "x" * SEGMENT))]))  # type: ignore[misc]
                assert storage.log.size <= log["max_bytes"] + 2 * SEGMENT
        finally:
            ticks._stop.set()
            storage.crowded.set()
            thread.join()
        assert storage.log.head == 50 and storage.full is None


def test_a_query_that_could_not_be_started_holds_the_log_for_a_while(engine: Engine) -> None:
    storage = engine.storage
    source = filled(storage)
    view = make(storage, "v", Kind.VIEW, depends_on=(source.id,))
    engine.jobs.refused[view.id] = time.time() - 59
    assert floor(engine, source) == Floor(0, "materialized view v")
    engine.jobs.refused[view.id] -= 2
    assert floor(engine, source) == Floor(lsns(storage, source)[-1], HISTORY)


def test_a_sink_holds_what_it_has_not_delivered(engine: Engine) -> None:
    storage = engine.storage
    stream = filled(storage, "s", Kind.STREAM)
    sink = make(storage, "out", Kind.SINK, depends_on=(stream.id,))
    assert floor(engine, stream) == Floor(0, "sink out")
    engine.sinks[sink.id] = SimpleNamespace(durable_lsn=lsns(storage, stream)[2])
    assert floor(engine, stream) == Floor(lsns(storage, stream)[2], "sink out")


def test_contents_are_written_down_before_what_they_are_made_of_goes(engine: Engine) -> None:
    storage = engine.storage
    table = filled(storage, "t", Kind.TABLE)
    retention = Retention(engine)  # type: ignore[arg-type]
    retention.look(table)
    waiting = Floor(0, "its contents, which are not written down yet")
    assert retention.floors[table.id] == waiting and not storage.layout.snapshot(table.id).exists()
    storage.commit([part(table, *((i, "x" * 50, 1) for i in range(10, 110)))])
    retention.look(table)
    assert retention.floors[table.id] == Floor(storage.log.head, HISTORY)
    retention.trim()
    assert lsns(storage, table) == [] and storage.layout.snapshot(table.id).exists()
    # What came since waits again, until there is as much of it as the file has.
    storage.commit([part(table, (0, "x", -1))])
    retention.look(table)
    assert retention.floors[table.id] == waiting._replace(lsn=storage.log.head - 1)
    retention.trim()
    assert lsns(storage, table) == [storage.log.head] and len(in_contents(storage, table)) == 104


def test_nobody_can_ask_for_the_past_of_what_is_looked_up_on_demand(engine: Engine) -> None:
    storage = engine.storage
    options = {"strategy": "on-demand", "retain_history": "1gb"}
    lookup = filled(storage, "d", Kind.LOOKUP, count=3, options=options)
    probe = filled(storage, "p", Kind.STREAM, role=Role.PROBE, options={"retain_history": "1gb"})
    assert floor(engine, probe) == Floor(lsns(storage, probe)[-1], HISTORY)
    assert floor(engine, lookup).held_by == "its contents, which are not written down yet"


def ticker(engine: Any) -> Ticker:
    """A ticker without its thread."""
    made = object.__new__(Ticker)
    made._scrub = Scrub(engine.storage)
    made._engine = engine
    made._errors = {}
    made._stop = threading.Event()
    made.retention = Retention(engine)
    return made


def test_one_object_that_cannot_be_looked_at_does_not_keep_the_others(engine: Engine) -> None:
    storage = engine.storage
    broken, sound = filled(storage, "t", Kind.TABLE, count=1), filled(storage, "s")
    storage.commit([part(broken, *((i, "x" * 50, 1) for i in range(100, 200)))])
    storage.damage[broken.id] = fail("PSK-6004", "damaged")
    ticks = ticker(engine)
    ticks.trim()
    assert lsns(storage, sound) == [] and len(lsns(storage, broken)) == 2
    assert "damaged" in str(ticks.error(broken.id)) and ticks.error(sound.id) is None
    del storage.damage[broken.id]
    ticks.trim()
    assert ticks.error(broken.id) is None and lsns(storage, broken) == []
    assert {i for i, _ in engine.trimmed} == {broken.id, sound.id}


def test_a_dropped_object_is_forgotten(engine: Engine) -> None:
    storage = engine.storage
    gone, kept = filled(storage, "a"), filled(storage, "b")
    ticks = ticker(engine)
    for info in (gone, kept):
        ticks.retention.look(info)
    drop(storage, gone)
    ticks.retention.trim()
    assert engine.trimmed == [(kept.id, storage.log.head)]
    ticks.trim()
    assert set(ticks.retention.floors) == {kept.id}


def test_nothing_is_removed_while_somebody_makes_a_reader_of_it(engine: Engine) -> None:
    storage = engine.storage
    source = filled(storage)
    ticks = ticker(engine)
    begun, made = threading.Event(), threading.Event()

    def create() -> None:
        with engine.ddl:
            begun.set()
            assert made.wait(10)

    other = threading.Thread(target=create)
    other.start()
    assert begun.wait(10)
    # The statement has seen a complete history; its query is not in the catalogue yet.
    ticks.trim()
    assert len(lsns(storage, source)) == 5
    made.set()
    other.join(10)
    ticks.trim()
    assert lsns(storage, source) == []


READERS = st.lists(
    st.tuples(st.sampled_from(["running", "missing", "failed", "released", "sink", "late"]), st.integers(0, 12)),
    max_size=3,
)
OBJECTS = st.lists(
    st.tuples(st.sampled_from([Kind.SOURCE, Kind.STREAM, Kind.TABLE]), st.integers(0, 8), READERS),
    min_size=1,
    max_size=3,
)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(objects=OBJECTS, commits=st.lists(st.integers(0, 2), min_size=1, max_size=12), again=st.booleans())
def test_nothing_above_a_floor_is_ever_removed(
    storage: Storage, objects: list[tuple[Kind, int, list[tuple[str, int]]]], commits: list[int], again: bool
) -> None:
    engine: Any = Engine(storage)
    made = []
    for n, (kind, keep, readers) in enumerate(objects):
        info = make(storage, f"o{n}_{storage.log.head}", kind)
        made.append((info, keep, readers))
    for n, which in enumerate(commits):
        info, _, _ = made[which % len(made)]
        storage.commit([part(info, (n, "x", 1) if info.changelog else (n, "x"))])
    first = storage.log.head - len(commits)
    wanted = {}
    for info, keep, readers in made:
        own = lsns(storage, info)
        size = max([0, *(e.length for e in storage.log.entries(info.id))])
        storage.catalog.replace(replace(info, options={"retain_history": f"{keep * size + size // 2}b"}))
        bounds = [own[-keep - 1] if len(own) > keep else 0]
        for r, (state, behind) in enumerate(readers):
            at = max(first, storage.log.head - behind)
            bounds += add_reader(engine, info, f"r{info.id}_{r}", state, at)
        if info.has_contents:
            bounds.append(0)
        wanted[info.id] = min(bounds), own
    ticks = ticker(engine)
    ticks.trim()
    assert {i: f.lsn for i, f in ticks.retention.floors.items() if i in wanted} == {
        i: b for i, (b, _) in wanted.items()
    }
    if again:
        ticks.trim()
    assert not ticks._errors
    for object_id, (bound, own) in wanted.items():
        assert [e.lsn for e in storage.log.entries(object_id)] == [n for n in own if n > bound]
    for info in reversed(storage.catalog.objects()):
        drop(storage, info)


def add_reader(engine: Any, info: ObjectInfo, name: str, state: str, at: int) -> list[int]:
    """Adds a dependent that has come to an LSN; the LSN up to which it lets the log go."""
    storage, head = engine.storage, engine.log.head
    if state == "sink":
        sink = make(storage, name, Kind.SINK, depends_on=(info.id,))
        engine.sinks[sink.id] = SimpleNamespace(durable_lsn=at)
        return [at]
    role = Role.LATE_ROWS if state == "late" else Role.USER
    view = make(storage, name, Kind.STREAM, depends_on=(info.id,), role=role)
    if state == "late":
        return [head]
    if state == "missing":
        return [0]
    failed_at = time.time() - (61 if state == "released" else 1)
    job = Job(at) if state == "running" else Job(at, JobState.FAILED, failed_at)
    engine.jobs.by_object[view.id] = job
    return [head if state == "released" else at]


def test_the_trimmed_log_opens_again(tmp_path: Path) -> None:
    log = {"segment_bytes": SEGMENT, "retain_bytes": 0}
    with opened(tmp_path, log=log) as storage:
        engine = Engine(storage)
        table, source = make(storage, "t"), make(storage, "s", Kind.SOURCE)
        for i in range(40):
            storage.commit([part(table, (i, "x" * 100, 1)), part(source, (i, "x" * 100))])
        ticker(engine).trim()
        assert lsns(storage, source) == [] and len(lsns(storage, table)) < 40
        rows = in_contents(storage, table)
    with opened(tmp_path, log=log) as storage:
        assert in_contents(storage, table) == rows and len(rows) == 40
