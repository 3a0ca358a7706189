from __future__ import annotations

import random
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.kernels import POISON
from tests.unit.runtime.pipelines import Pipeline, on_storage, pipeline
from tests.unit.runtime.storing import drop, eventually, opened

from penstock.catalog import store as catalog_store
from penstock.catalog.objects import Generation, Kind, ObjectInfo, Solo
from penstock.errors import PenstockError, fail
from penstock.runtime.jobs import shared as shared_module
from penstock.runtime.lifecycle import JobState
from penstock.runtime.storage.storage import Storage

BASE = 1 << 40
FULL = fail("PSK-7004", "The disk is full.")
REFUSED = fail("PSK-7001", "Spark refuses.")


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    with opened(tmp_path_factory.mktemp("shared")) as storage:
        yield storage


@pytest.fixture
def pipe(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    """A pipeline in which nothing is left of the test before."""
    with on_storage(storage, monkeypatch) as made:
        yield made
    with storage.catalog.edit():
        storage.catalog.shared.clear()
        storage.catalog.solo.clear()
    for info in reversed(storage.catalog.objects()):
        drop(storage, info)


def generation(pipe: Pipeline, source: ObjectInfo) -> Generation | None:
    return pipe.storage.catalog.shared.get(source.id)


def folders(pipe: Pipeline, source: ObjectInfo) -> list[str]:
    """The generations that have a folder."""
    home = pipe.storage.layout.shared(source.id, 0).parent
    return sorted(f.name for f in home.iterdir()) if home.is_dir() else []


def test_queries_without_state_on_one_object_are_one_job(pipe: Pipeline) -> None:
    source, other = pipe.source(), pipe.source("other")
    a, b, c = pipe.view("a", source), pipe.view("b", source), pipe.view("c", other)
    assert pipe.jobs.by_object[a.id] is pipe.jobs.by_object[b.id] is not pipe.jobs.by_object[c.id]
    assert len(pipe.world.running) == 2
    pipe.insert(source, (1, "x"))
    pipe.settle()
    assert (pipe.keys(a), pipe.keys(b), pipe.keys(c)) == ([1], [1], [])
    assert pipe.storage.log.last_entry(a.id).lsn == pipe.storage.log.last_entry(b.id).lsn  # type: ignore[union-attr]
    now = generation(pipe, source)
    assert now is not None and (now.number, now.members) == (2, (a.id, b.id)) and folders(pipe, source) == ["2"]


def test_a_query_does_not_join_where_there_is_something_to_read_first(pipe: Pipeline) -> None:
    source = pipe.source()
    pipe.insert(source, (1, "x"))
    a = pipe.view("a", source)
    pipe.settle()
    assert generation(pipe, source) is None and pipe.keys(a) == [1]
    assert pipe.storage.layout.job(a.id).exists()


def test_members_come_and_go_and_nobody_loses_a_row(pipe: Pipeline) -> None:
    source = pipe.source()
    a = pipe.view("a", source)
    pipe.insert(source, (1, "x"))
    pipe.settle()
    pipe.forget_history(source)
    b = pipe.view("b", source)
    pipe.insert(source, (2, "x"))
    pipe.settle()
    pipe.jobs.shared.renew(source.id)
    pipe.insert(source, (3, "x"))
    pipe.settle()
    assert (pipe.keys(a), pipe.keys(b)) == ([1, 2, 3], [2, 3])
    numbers = generation(pipe, source)
    assert numbers is not None and numbers.number == 3 and folders(pipe, source) == ["3"]
    pipe.drop(a)
    pipe.insert(source, (4, "x"))
    pipe.settle()
    assert pipe.keys(b) == [2, 3, 4]
    pipe.drop(b)
    assert generation(pipe, source) is None and pipe.world.running == [] and folders(pipe, source) == []


def test_numbers_are_never_given_again(pipe: Pipeline) -> None:
    source = pipe.source()
    a = pipe.view("a", source)
    pipe.drop(a)
    # Nothing is left of the generations before, but their numbers must not come again: a folder may not have been removed.
    pipe.storage.layout.shared(source.id, 1).mkdir(parents=True)
    b = pipe.view("b", source)
    now = generation(pipe, source)
    assert now is not None and now.number == 2 and folders(pipe, source) == ["2"]
    pipe.insert(source, (1, "x"))
    pipe.settle()
    assert pipe.storage.log.job_epoch(b.id) == 2 * BASE


def test_a_start_that_fails_leaves_the_others_running(pipe: Pipeline) -> None:
    source = pipe.source()
    a = pipe.view("a", source)
    pipe.insert(source, (1, "x"))
    pipe.settle()
    pipe.forget_history(source)
    pipe.world.starts.append(REFUSED)
    with pytest.raises(PenstockError, match="Spark refuses"):
        pipe.view("b", source)
    pipe.insert(source, (2, "x"))
    pipe.settle()
    assert pipe.keys(a) == [1, 2] and pipe.state(a) is JobState.RUNNING
    now = generation(pipe, source)
    assert now is not None and now.members == (a.id,) and now.number == 3
    assert folders(pipe, source) == ["3"]
    # It can be tried again.
    pipe.forget_history(source)
    c = pipe.view("c", source)
    pipe.insert(source, (3, "x"))
    pipe.settle()
    assert (pipe.keys(a), pipe.keys(c)) == ([1, 2, 3], [3])


def test_a_first_start_that_fails_leaves_nothing(pipe: Pipeline) -> None:
    source = pipe.source()
    pipe.world.starts.append(REFUSED)
    with pytest.raises(PenstockError, match="Spark refuses"):
        pipe.view("a", source)
    assert generation(pipe, source) is None and pipe.world.running == [] and folders(pipe, source) == []
    b = pipe.view("b", source)
    pipe.insert(source, (1, "x"))
    pipe.settle()
    assert pipe.keys(b) == [1]


def test_ctrl_c_in_a_start_leaves_the_others_running(pipe: Pipeline) -> None:
    source = pipe.source()
    a = pipe.view("a", source)
    pipe.world.starts.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        pipe.view("b", source)
    pipe.insert(source, (1, "x"))
    pipe.settle()
    assert pipe.keys(a) == [1] and len(pipe.world.running) == 1


class Disk:
    """Refuses the writes of the catalogue that are to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refuses: deque[bool] = deque()
        write = catalog_store.write_catalog

        def refusing(*args: Any) -> None:
            if self.refuses and self.refuses.popleft():
                raise FULL
            write(*args)

        monkeypatch.setattr(catalog_store, "write_catalog", refusing)


def test_a_generation_that_cannot_be_noted_does_not_begin(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    source = pipe.source()
    a = pipe.view("a", source)
    pipe.insert(source, (1, "x"))
    pipe.settle()
    pipe.forget_history(source)
    disk = Disk(monkeypatch)
    disk.refuses.append(True)
    with pytest.raises(PenstockError, match="The disk is full"):
        pipe.view("b", source)
    assert pipe.state(a) is JobState.RUNNING
    pipe.insert(source, (2, "x"))
    pipe.settle()
    assert pipe.keys(a) == [1, 2]


def test_queries_that_cannot_go_on_say_so(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    source = pipe.source()
    a = pipe.view("a", source)
    pipe.insert(source, (1, "x"))
    pipe.settle()
    pipe.forget_history(source)
    # The new generation does not start, and neither does the old one after it.
    pipe.world.starts.extend([REFUSED, fail("PSK-7001", "It refuses again.")])
    with pytest.raises(PenstockError, match="Spark refuses"):
        pipe.view("b", source)
    assert pipe.world.running == [] and "It refuses again" in str(pipe.error(a))
    pipe.stop()
    pipe.start()
    pipe.insert(source, (2, "x"))
    pipe.settle()
    assert pipe.keys(a) == [1, 2] and pipe.error(a) is None


def test_a_job_that_does_not_come_to_rest_is_left_as_it_is(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    source = pipe.source()
    a = pipe.view("a", source)
    pipe.world.rest = False
    monkeypatch.setattr(shared_module, "_QUIESCE_MS", 50)
    with pytest.raises(PenstockError, match="PSK-0010"):
        pipe.view("b", source)
    pipe.world.rest = True
    pipe.insert(source, (1, "x"))
    pipe.settle()
    assert pipe.keys(a) == [1]


def test_a_job_that_fails_is_split_up_and_the_one_at_fault_is_known(pipe: Pipeline) -> None:
    source = pipe.source()
    a, bad, c = (pipe.view(n, source) for n in ("a", "bad", "c"))
    pipe.insert(source, (1, "x"))
    pipe.settle()
    pipe.world.sensitive.add("bad")
    pipe.insert(source, (2, POISON))
    pipe.insert(source, (3, "x"))
    for info in (a, c):
        pipe.settle(info)
    eventually(lambda: pipe.state(bad) is JobState.FAILED, "the failure")
    with pytest.raises(PenstockError, match="A poisoned row"):
        pipe.settle(bad)
    assert pipe.keys(a) == pipe.keys(c) == [1, 2, 3] and pipe.keys(bad) == [1]
    assert generation(pipe, source) is None and folders(pipe, source) == []
    solo = pipe.storage.catalog.solo
    assert set(solo) == {a.id, bad.id, c.id} and {s.base for s in solo.values()} == {4 * BASE}
    # It heals, and goes on where it was.
    pipe.world.sensitive.clear()
    with pipe.ddl:
        pipe.jobs.stop(bad)
        pipe.jobs.start(bad)
    pipe.settle()
    assert pipe.keys(bad) == [1, 2, 3]


def test_whoever_waits_for_a_member_waits_for_the_split(pipe: Pipeline) -> None:
    source = pipe.source()
    a, bad = pipe.view("a", source), pipe.view("bad", source)
    pipe.world.sensitive.add("bad")
    pipe.insert(source, (1, POISON))
    pipe.settle(a)
    assert pipe.keys(a) == [1]
    with pytest.raises(PenstockError, match="A poisoned row"):
        pipe.settle(bad)


def test_members_of_a_split_job_go_on_alone_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pipeline(tmp_path, monkeypatch) as pipe:
        source = pipe.source()
        a, b = pipe.view("a", source), pipe.view("b", source)
        pipe.world.epochs.append(REFUSED)
        pipe.insert(source, (1, "x"))
        pipe.settle()
        assert len(pipe.world.running) == 2
    with pipeline(tmp_path, monkeypatch) as pipe:
        pipe.start()
        pipe.insert(source, (2, "x"))
        pipe.settle()
        assert pipe.keys(a) == pipe.keys(b) == [1, 2] and generation(pipe, source) is None


def test_a_pipeline_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pipeline(tmp_path, monkeypatch) as pipe:
        source = pipe.source()
        a, b = pipe.view("a", source), pipe.view("b", source)
        pipe.insert(source, (1, "x"))
        pipe.settle()
        pipe.stop()
        pipe.insert(source, (2, "x"))
        pipe.start()
        pipe.settle()
    with pipeline(tmp_path, monkeypatch) as pipe:
        pipe.insert(source, (3, "x"))
        pipe.start()
        pipe.settle()
        assert pipe.keys(a) == pipe.keys(b) == [1, 2, 3]
        assert generation(pipe, source) == Generation(2, 0, (a.id, b.id))


def test_a_member_that_the_catalogue_never_had_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pipeline(tmp_path, monkeypatch) as pipe:
        source = pipe.source()
        a = pipe.view("a", source)
        with pipe.storage.catalog.edit():
            # The crash came when the generation was noted, and the query was not in the catalogue yet.
            pipe.storage.catalog.shared[source.id] = Generation(2, 0, (a.id, 99))
        lost = pipe.source("other")
        with pipe.storage.catalog.edit():
            pipe.storage.catalog.shared[lost.id] = Generation(1, 0, (98,))
    with pipeline(tmp_path, monkeypatch) as pipe:
        pipe.start()
        pipe.insert(source, (1, "x"))
        pipe.settle()
        assert pipe.keys(a) == [1] and generation(pipe, lost) is None
        assert list(pipe.jobs.by_object) == [a.id]
        pipe.forget_history(source)
        b = pipe.view("b", source)
        now = generation(pipe, source)
        assert now is not None and now.members == (a.id, b.id)


def test_a_member_whose_plan_is_refused_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pipeline(tmp_path, monkeypatch) as pipe:
        source = pipe.source()
        a, b = pipe.view("a", source), pipe.view("b", source)
        pipe.insert(source, (1, "x"))
        pipe.settle()
    with pipeline(tmp_path, monkeypatch) as pipe:
        pipe.planner.refuses.add("b")
        pipe.insert(source, (2, "x"))
        pipe.start()
        pipe.settle(a)
        assert pipe.keys(a) == [1, 2] and pipe.state(b) is None
        assert str(pipe.error(b)).startswith("PSK-6003")
        # It goes on, without a gap, when its plan fits again.
        pipe.stop()
        pipe.planner.refuses.clear()
        pipe.start()
        pipe.settle()
        assert pipe.keys(b) == [1, 2] and pipe.error(b) is None


@pytest.mark.parametrize("on", [True, False], ids=["running", "stopped"])
def test_several_members_are_dropped_at_once(pipe: Pipeline, on: bool) -> None:
    source = pipe.source()
    a, b, c = (pipe.view(n, source) for n in ("a", "b", "c"))
    pipe.insert(source, (1, "x"))
    pipe.settle()
    if not on:
        pipe.stop()
    pipe.drop(a, b)
    pipe.insert(source, (2, "x"))
    pipe.start()
    pipe.settle()
    assert pipe.keys(c) == [1, 2] and len(pipe.world.running) == 1
    if not on:
        pipe.stop()
    # With all that it feeds.
    pipe.drop(c, source)
    assert pipe.world.running == [] and pipe.storage.catalog.shared == {} and folders(pipe, source) == []


def test_a_member_that_is_stopped_and_started_goes_on_alone(pipe: Pipeline) -> None:
    source = pipe.source()
    a, b = pipe.view("a", source), pipe.view("b", source)
    lsn = pipe.insert(source, (1, "x"))
    pipe.settle()
    with pipe.ddl:
        pipe.jobs.stop(a)
        pipe.insert(source, (2, "x"))
        pipe.jobs.start(a)
    pipe.settle()
    assert pipe.keys(a) == pipe.keys(b) == [1, 2]
    assert pipe.storage.catalog.solo[a.id] == Solo(lsn, 3 * BASE)


def test_a_member_that_cannot_be_noted_as_alone_stays_a_member(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    source = pipe.source()
    a, b = pipe.view("a", source), pipe.view("b", source)
    pipe.insert(source, (1, "x"))
    pipe.settle()
    Disk(monkeypatch).refuses.append(True)
    with pipe.ddl, pytest.raises(PenstockError, match="The disk is full"):
        pipe.jobs.stop(a)
    pipe.insert(source, (2, "x"))
    pipe.settle()
    assert pipe.keys(a) == pipe.keys(b) == [1, 2] and pipe.storage.catalog.solo == {}


def test_a_dropped_member_does_not_take_the_others_with_it(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    source = pipe.source()
    a, b, c = (pipe.view(n, source) for n in ("a", "b", "c"))
    disk = Disk(monkeypatch)
    # The catalogue has dropped it; that it is no member any more cannot be noted.
    disk.refuses.extend([False, True])
    with pytest.raises(PenstockError, match="The disk is full"):
        pipe.drop(a)
    pipe.storage.detach(a.id)
    pipe.insert(source, (1, "x"))
    pipe.settle()
    assert pipe.keys(b) == pipe.keys(c) == [1]
    # The job does not come to rest, so it still writes what nobody takes.
    pipe.world.rest = False
    monkeypatch.setattr(shared_module, "_QUIESCE_MS", 50)
    with pytest.raises(PenstockError, match="PSK-0010"):
        pipe.drop(b)
    pipe.storage.detach(b.id)
    pipe.insert(source, (2, "x"))
    pipe.settle()
    assert pipe.keys(c) == [1, 2]


def test_a_query_that_is_made_while_the_pipeline_is_stopped_joins_when_it_starts(pipe: Pipeline) -> None:
    source = pipe.source()
    a = pipe.view("a", source)
    pipe.stop()
    b = pipe.view("b", source)
    pipe.start()
    assert len(pipe.world.running) == 1
    pipe.insert(source, (1, "x"))
    pipe.settle()
    assert pipe.keys(a) == pipe.keys(b) == [1] and pipe.storage.catalog.solo == {}
    now = generation(pipe, source)
    assert now is not None and (now.number, now.members) == (2, (a.id, b.id))


def test_a_shared_job_that_has_lost_its_checkpoint_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pipeline(tmp_path, monkeypatch) as pipe:
        source = pipe.source()
        a, b = pipe.view("a", source), pipe.view("b", source)
        for k in (1, 2):
            pipe.insert(source, (k, "x"))
            pipe.settle()
    shutil.rmtree(pipe.storage.layout.jobs)
    with pipeline(tmp_path, monkeypatch) as pipe:
        pipe.insert(source, (3, "x"))
        pipe.start()
        pipe.settle()
        assert pipe.keys(a) == pipe.keys(b) == [1, 2, 3]


def test_an_epoch_that_spark_has_not_committed_is_not_repeated_by_the_next_generation(pipe: Pipeline) -> None:
    source = pipe.source()
    a = pipe.view("a", source)
    lsn = pipe.insert(source, (1, "x"))
    pipe.settle()
    pipe.stop()
    # The epoch is in the log, and the process has ended before Spark knew.
    (pipe.storage.layout.shared(source.id, 1) / "checkpoint" / "commits" / "0").unlink()
    pipe.jobs.shared.renew(source.id)
    pipe.insert(source, (2, "x"))
    pipe.start()
    pipe.settle()
    assert pipe.keys(a) == [1, 2] and generation(pipe, source) == Generation(2, lsn, (a.id,))


def test_nobody_takes_a_query_for_settled_while_its_job_is_exchanged(pipe: Pipeline) -> None:
    source = pipe.source()
    a = pipe.view("a", source)
    begun, go, seen = threading.Event(), threading.Event(), []

    def slow() -> None:
        begun.set()
        assert go.wait(10)

    pipe.world.at_start = slow
    exchange = threading.Thread(target=pipe.view, args=("b", source))
    exchange.start()
    assert begun.wait(10)
    lsn = pipe.insert(source, (1, "x"))
    assert pipe.jobs.settle(a, lsn, time.monotonic() + 0.1) is False

    def wait() -> None:
        pipe.settle(a)
        seen.append(pipe.keys(a))

    waiting = threading.Thread(target=wait)
    waiting.start()
    pipe.world.at_start = lambda: None
    go.set()
    for t in (exchange, waiting):
        t.join(10)
    assert seen == [[1]]


@pytest.mark.parametrize("seed", range(2))
def test_whatever_happens_every_member_has_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Queries come and go, starts and epochs fail, the disk is full now and then, and the process is begun again."""
    chance = random.Random(seed)
    names, keys = iter(f"q{n}" for n in range(10**6)), iter(range(10**6))
    since: dict[int, list[int]] = {}
    for _ in range(3):
        with pipeline(tmp_path, monkeypatch) as pipe:
            disk = Disk(monkeypatch)
            source = pipe.storage.catalog.get("s") or pipe.source()
            pipe.start()
            for _ in range(12):
                views = pipe.storage.catalog.objects(Kind.VIEW)
                match chance.choice(["insert"] * 3 + ["join", "join", "drop", "renew", "restart", "trim", "trouble"]):
                    case "insert":
                        k = next(keys)
                        pipe.insert(source, (k, "x"))
                        for own in since.values():
                            own.append(k)
                    case "join" if len(views) < 4:
                        if pipe.storage.log.first_entry(source.id) is None:
                            with suppress(PenstockError):
                                since[pipe.view(next(names), source).id] = []
                    case "drop" if views:
                        gone = chance.choice(views)
                        with suppress(PenstockError):
                            pipe.drop(gone)
                        if pipe.storage.catalog.has_id(gone.id):
                            continue
                        pipe.storage.detach(gone.id)
                        del since[gone.id]
                    case "renew":
                        with pipe.ddl, suppress(PenstockError):
                            pipe.jobs.shared.renew(source.id)
                    case "restart":
                        pipe.stop()
                        disk.refuses.clear()
                        pipe.world.starts.clear()
                        pipe.start()
                    case "trim":
                        pipe.stop()
                        disk.refuses.clear()
                        pipe.world.starts.clear()
                        pipe.start()
                        pipe.settle()
                        pipe.forget_history(source)
                    case "trouble":
                        pipe.world.starts.extend(chance.choices([None, REFUSED], k=2))
                        pipe.world.epochs.extend(chance.choices([None, REFUSED], k=2))
                        disk.refuses.extend(chance.choices([False, True], [3, 1], k=3))
            disk.refuses.clear()
            pipe.world.starts.clear()
            pipe.world.epochs.clear()
            pipe.stop()
            pipe.start()
            pipe.settle()
            for info in pipe.storage.catalog.objects(Kind.VIEW):
                assert pipe.keys(info) == since[info.id], (seed, info.name)
