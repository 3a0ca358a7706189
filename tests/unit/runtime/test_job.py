from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.runtime.kernels import Compiled, Output, World
from tests.unit.runtime.storing import eventually, fresh, in_contents, make, opened, part

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.errors import PenstockError, fail
from penstock.runtime.jobs import job as job_module
from penstock.runtime.jobs.job import Job, JobSpec
from penstock.runtime.jobs.limits import StateGuard, StateLimits
from penstock.runtime.jobs.pace import Pace
from penstock.runtime.lifecycle import JobState
from penstock.runtime.storage.record import Recorder
from penstock.runtime.storage.storage import Storage

FULL = fail("PSK-7004", "The disk is full.")
REFUSED = fail("PSK-7001", "Spark refuses.")


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Waits are short; for how many failures in a row there was one is noted."""
    seen: list[int] = []

    def short(failures: int) -> float:
        seen.append(failures)
        return 0.001

    monkeypatch.setattr(job_module, "wait_s", short)
    monkeypatch.setattr(job_module, "_POLL_MS", 20)
    return seen


@dataclass
class Query:
    """A view over a source, its job, and what was heard of it."""

    storage: Storage
    world: World
    source: ObjectInfo
    view: ObjectInfo
    job: Job
    failed: list[str] = field(default_factory=list)
    healed: list[int] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    def insert(self, k: int = 1) -> int:
        return self.storage.commit([part(self.source, (k, "x"))]).lsn

    def await_state(self, state: JobState) -> None:
        eventually(lambda: self.job.state is state, f"state {state}")


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    with opened(tmp_path_factory.mktemp("jobs")) as storage:
        yield storage


@pytest.fixture
def make_query(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Query]]:
    made: list[Query] = []
    uncaught: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: uncaught.append(args.exc_value))

    def query(start: bool = True, **more: Any) -> Query:
        source = make(storage, fresh("s"), Kind.SOURCE)
        view = make(storage, fresh("v"), Kind.VIEW, depends_on=(source.id,))
        world = World(storage)
        compiled = Compiled((view.name,), [source.id], [Output()])
        schemas = [Recorder(storage, [view], [])._schemas[0]]
        outputs: Any = [Output()]
        failed: list[str] = []
        healed: list[int] = []
        spec = JobSpec(
            name=view.name,
            objects=(view.id,),
            make=lambda: world.kernel(
                None, "", view.name, compiled, folder=storage.layout.job(view.id), schemas=schemas
            ),
            recorder=Recorder(storage, [view], outputs),
            failed=lambda error: failed.append(error.code),
            healed=lambda: healed.append(storage.log.head),
        )
        one = Query(storage, world, source, view, Job(replace(spec, **more)), failed, healed)
        made.append(one)
        if start:
            one.job.start()
        return one

    yield query
    for one in made:
        one.job.stop()
        assert not one.job._pump.is_alive() and not one.world.running
    assert uncaught == []


def test_a_query_records_what_its_kernel_makes(make_query: Callable[..., Query]) -> None:
    q = make_query()
    assert q.job.state is JobState.RUNNING
    for k in range(3):
        lsn = q.insert(k)
    assert q.job.settle(lsn, time.monotonic() + 10)
    assert in_contents(q.storage, q.view) == {(0, "x"): 1, (1, "x"): 1, (2, "x"): 1}
    assert q.job.rows_out(q.view.id) == 3 and q.job.rows_out(q.source.id) == 0
    assert q.job.figures.reached == lsn and q.job.figures.epochs >= 1
    q.job.stop()
    assert q.job.state is JobState.STOPPED and q.world.made[0].stops == 1
    with pytest.raises(PenstockError, match="PSK-7006"):
        q.job.settle(lsn, None)
    assert (q.failed, q.healed) == ([], [])


def test_a_query_that_spark_refuses_leaves_nothing_running(make_query: Callable[..., Query]) -> None:
    for error in (REFUSED, KeyboardInterrupt(), ValueError("a defect")):
        q = make_query(start=False)
        q.world.starts.append(error)
        with pytest.raises(type(error)):
            q.job.start()
        assert q.job.state is JobState.STOPPED and q.world.made[0].stops == 1


def test_what_can_pass_is_tried_again_with_growing_waits(make_query: Callable[..., Query], waits: list[int]) -> None:
    q = make_query()
    q.world.epochs = deque([REFUSED, None, fail("PSK-5002", "away"), REFUSED, ValueError("a defect")])
    lsn = q.insert(1)
    eventually(lambda: in_contents(q.storage, q.view) == {(1, "x"): 1}, "the first epoch")
    assert waits == [1]
    # The epoch between counts from the beginning again.
    lsn = q.insert(2)
    eventually(lambda: q.job.figures.reached >= lsn, "the second epoch")
    assert waits == [1, 1, 2, 3]
    assert in_contents(q.storage, q.view) == {(1, "x"): 1, (2, "x"): 1}
    assert q.job.state is JobState.RUNNING and q.job.error is None and q.job.failed_at is None
    assert q.failed == [] and len(q.healed) == 2
    assert len(q.world.running) == 1 and all(k.stops for k in q.world.made[:-1])


def test_it_gives_up_after_five_failures_in_a_row(make_query: Callable[..., Query], waits: list[int]) -> None:
    q = make_query()
    q.world.epochs = deque([REFUSED] * 9)
    before = time.time()
    lsn = q.insert()
    q.await_state(JobState.FAILED)
    eventually(lambda: q.failed == ["PSK-7001"], "the report")
    assert waits == [1, 2, 3, 4] and len(q.world.made) == 5
    assert q.job.error is REFUSED and before <= (q.job.failed_at or 0) <= time.time()
    with pytest.raises(PenstockError, match="Spark refuses"):
        q.job.settle(lsn, None)
    assert q.healed == [] and not in_contents(q.storage, q.view)


def test_starts_that_fail_count_as_well(make_query: Callable[..., Query], waits: list[int]) -> None:
    q = make_query()
    q.world.epochs.append(REFUSED)
    q.world.starts = deque([REFUSED, OSError("a defect"), REFUSED, REFUSED, REFUSED])
    q.insert()
    q.await_state(JobState.FAILED)
    eventually(lambda: q.failed == ["PSK-7001"], "the report")
    assert waits == [1, 2, 3, 4] and len(q.world.starts) == 1


def test_a_full_disk_is_tried_for_ever(make_query: Callable[..., Query], waits: list[int]) -> None:
    q = make_query()
    q.world.epochs = deque([FULL] * 20)
    lsn = q.insert()
    eventually(lambda: q.job.figures.reached >= lsn, "the epoch")
    assert waits == list(range(1, 21)) and q.failed == []
    assert q.job.error is None and len(q.healed) == 1


@pytest.mark.parametrize("error", [fail("PSK-4002", "too much state"), fail("PSK-6004", "damaged")])
def test_what_cannot_pass_fails_at_once(
    make_query: Callable[..., Query], waits: list[int], error: PenstockError
) -> None:
    q = make_query()
    q.world.epochs.append(error)
    q.insert()
    q.await_state(JobState.FAILED)
    eventually(lambda: q.failed == [error.code], "the report")
    assert waits == []


def test_an_epoch_that_cannot_be_recorded_is_refused_and_comes_again(
    make_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    q = make_query()
    commit = q.storage.commit
    errors = deque([FULL, OSError("a defect")])

    def failing(parts: Any) -> Any:
        if errors and parts[0].object_id == q.view.id:
            raise errors.popleft()
        return commit(parts)

    monkeypatch.setattr(q.storage, "commit", failing)
    lsn = q.insert()
    eventually(lambda: q.job.figures.reached >= lsn, "the epoch")
    assert in_contents(q.storage, q.view) == {(1, "x"): 1}
    first, second, third = q.world.made
    assert "disk is full" in first.refused[0] and "OSError: a defect" in second.refused[0] and not third.refused


def test_an_epoch_that_was_recorded_before_a_failure_is_not_recorded_twice(make_query: Callable[..., Query]) -> None:
    q = make_query()
    broken = deque([ValueError("a defect")])
    known = q.job.spec.recorder
    done = known.record

    class Late:
        """Fails when the epoch is in the log already."""

        def record(self, epoch: Any, stopping: Any) -> bool:
            out = done(epoch, stopping)
            if broken:
                raise broken.popleft()
            return out

        def objects(self, epoch: Any) -> Any:
            return known.objects(epoch)

    object.__setattr__(q.job.spec, "recorder", Late())
    lsn = q.insert()
    eventually(lambda: q.job.figures.reached >= lsn, "the epoch")
    assert in_contents(q.storage, q.view) == {(1, "x"): 1} and q.storage.log.epoch(q.view.id) == 1


def test_a_query_that_ends_without_a_word_has_failed(make_query: Callable[..., Query]) -> None:
    q = make_query()
    q.world.made[0]._closed = True
    eventually(lambda: len(q.world.made) == 2, "another attempt")
    assert q.job.settle(q.insert(), time.monotonic() + 10)


def test_settle_waits_no_longer_than_it_may(make_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch) -> None:
    q = make_query()
    q.world.made[0].resting = True
    lsn = q.insert()
    begin = time.monotonic()
    assert q.job.settle(lsn, begin + 0.05) is False
    assert q.job.settle(lsn, begin - 1) is False
    assert time.monotonic() - begin < 5
    q.world.made[0].resting = False
    assert q.job.settle(lsn, time.monotonic() + 10) is True


def test_settle_has_a_waiting_query_try_now_and_reports_it_when_it_fails_again(
    make_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "wait_s", lambda failures: 60.0)
    q = make_query()
    q.world.epochs = deque([FULL] * 3)
    lsn = q.insert()
    q.await_state(JobState.RETRYING)
    begin = time.monotonic()
    with pytest.raises(PenstockError, match="The disk is full"):
        q.job.settle(lsn, None)
    # It was not given up: the next one who waits has it try once more.
    q.await_state(JobState.RETRYING)
    assert q.job.settle(lsn, begin + 30) is True
    assert time.monotonic() - begin < 30 and in_contents(q.storage, q.view) == {(1, "x"): 1}


def test_settle_waits_while_a_query_goes_back_from_checkpoint_to_checkpoint(make_query: Callable[..., Query]) -> None:
    damaged = fail("PSK-6001", "State is damaged.")
    tried: list[int] = []

    def mend(error: PenstockError, attempt: int) -> bool:
        # Whoever reads meanwhile waits.
        assert q.job.mending
        tried.append(attempt)
        return attempt < 4

    q = make_query(mend=mend)
    q.world.epochs = deque([damaged] * 4)
    lsn = q.insert()
    assert q.job.settle(lsn, time.monotonic() + 30) is True
    assert tried == [0, 1, 2, 3] and in_contents(q.storage, q.view) == {(1, "x"): 1}
    # There is an end to it.
    q.world.epochs = deque([damaged] * 5)
    lsn = q.insert(2)
    with pytest.raises(PenstockError, match=r"State is damaged"):
        q.job.settle(lsn, None)
    assert tried == [0, 1, 2, 3, 0, 1, 2, 3, 4] and q.job.state is JobState.FAILED and not q.job.mending


def test_a_query_that_works_again_and_has_nothing_to_do_is_settled(
    make_query: Callable[..., Query], waits: list[int]
) -> None:
    q = make_query()
    lsn = q.insert()
    assert q.job.settle(lsn, time.monotonic() + 10)
    q.world.starts = deque([FULL] * 4)
    q.world.made[0].error = FULL
    eventually(lambda: len(waits) == 5 and q.job.state is JobState.RUNNING, "another start")
    assert q.job.settle(lsn, time.monotonic() + 10) is True


def test_a_stop_does_not_wait_for_the_next_attempt(
    make_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "wait_s", lambda failures: 60.0)
    q = make_query()
    q.world.epochs.append(REFUSED)
    q.insert()
    q.await_state(JobState.RETRYING)
    begin = time.monotonic()
    q.job.stop()
    assert time.monotonic() - begin < 5
    assert q.job.state is JobState.STOPPED and len(q.world.made) == 1 and not q.job._pump.is_alive()


def test_a_stop_during_another_start_leaves_nothing_running(make_query: Callable[..., Query]) -> None:
    q = make_query()
    begun, go = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        assert go.wait(10)

    q.world.at_start = slow
    q.world.epochs.append(REFUSED)
    q.insert()
    assert begun.wait(10)
    stop = threading.Thread(target=q.job.stop)
    stop.start()
    eventually(lambda: q.job.state is JobState.STOPPED, "the stop")
    go.set()
    stop.join(10)
    assert not stop.is_alive() and not q.job._pump.is_alive()
    assert q.world.running == [] and q.failed == []


def test_an_abandoned_query_has_failed_and_does_nothing_more(make_query: Callable[..., Query]) -> None:
    interrupted = []
    q = make_query(interrupt=lambda: interrupted.append(1))
    q.world.made[0].resting = True
    gone = fail("PSK-7005", "The JVM exited.")
    q.job.abandon(gone)
    assert q.job.state is JobState.FAILED and q.job.error is gone and interrupted == [1]
    with pytest.raises(PenstockError, match="PSK-7005"):
        q.job.settle(q.insert(), None)
    eventually(lambda: not q.job._pump.is_alive(), "the end of the pump")
    assert q.failed == [] and not in_contents(q.storage, q.view)


def test_a_query_that_is_abandoned_while_it_starts_says_why(make_query: Callable[..., Query]) -> None:
    q = make_query(start=False)
    gone = fail("PSK-7005", "The JVM exited.")
    q.world.at_start = lambda: q.job.abandon(gone)
    with pytest.raises(PenstockError, match="PSK-7005"):
        q.job.start()
    assert q.world.running == []


def test_the_limit_of_its_state_is_checked_before_an_epoch_is_recorded(make_query: Callable[..., Query]) -> None:
    for limits in (StateLimits(query=100), StateLimits(operator=60)):
        q = make_query(guard=StateGuard("v", limits, None))
        kept = [SimpleNamespace(rows=1, bytes=40), SimpleNamespace(rows=1, bytes=60)]
        q.world.made[0].state = lambda kept=kept: kept  # type: ignore[method-assign,misc]
        q.insert()
        q.await_state(JobState.FAILED)
        assert q.job.error is not None and q.job.error.code == "PSK-4002"
        assert not in_contents(q.storage, q.view)


def test_an_epoch_that_takes_too_long_makes_the_next_ones_smaller(make_query: Callable[..., Query]) -> None:
    pace = Pace(2_000_000, 1)
    q = make_query(pace=pace, read=lambda epoch: 50_000)
    assert q.job.settle(q.insert(), time.monotonic() + 10)
    # The epochs of the stand-in say that they took 2 ms.
    eventually(lambda: bool(q.world.made[0].limits), "the limit")
    assert pace.over >= 1 and 1000 <= q.world.made[0].limits[-1] < 25_000
