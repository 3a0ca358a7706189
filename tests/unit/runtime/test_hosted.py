"""Queries that share a job: who is a member, what survives, and what happens when one of them fails."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.effort import times
from tests.unit.runtime.kernels import LATE, POISON, HostKernel
from tests.unit.runtime.pipelines import Pipeline, pipeline
from tests.unit.runtime.storing import eventually

from penstock.catalog import store as catalog_store
from penstock.catalog.objects import Hosting, Kind, ObjectInfo, Role, Slot
from penstock.errors import PenstockError, fail
from penstock.runtime.lifecycle import JobState

FULL = fail("PSK-7004", "The disk is full.")


@pytest.fixture(params=["keyed", "plain"])
def kind(request: pytest.FixtureRequest) -> str:
    """Whether queries keep state."""
    return str(request.param)


def hosting(pipe: Pipeline, source: ObjectInfo) -> Hosting | None:
    found = [h for key, h in pipe.storage.catalog.hosted.items() if key in (str(source.id), f"s{source.id}")]
    return found[0] if found else None


def slots(pipe: Pipeline, source: ObjectInfo) -> dict[int, int]:
    found = hosting(pipe, source)
    return {i: s.slot for i, s in found.members.items()} if found is not None else {}


def kernel(pipe: Pipeline) -> HostKernel:
    (running,) = [k for k in pipe.world.running if isinstance(k, HostKernel)]
    return running


def test_a_query_joins_and_leaves_a_running_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    with pipeline(tmp_path, monkeypatch) as pipe:
        source = pipe.source()
        pipe.insert(source, (1, "x"))
        a = pipe.view(f"{kind}_a", source)
        pipe.settle()
        first = kernel(pipe)
        pipe.insert(source, (2, "x"))
        b = pipe.view(f"{kind}_b", source)
        pipe.insert(source, (3, "x"))
        pipe.settle()
        assert pipe.keys(a) == pipe.keys(b) == [1, 2, 3]
        assert kernel(pipe) is first and slots(pipe, source) == {a.id: 1, b.id: 2}
        assert pipe.jobs.by_object[a.id] is pipe.jobs.by_object[b.id]
        pipe.drop(a)
        pipe.insert(source, (4, "x"))
        pipe.settle()
        assert pipe.keys(b) == [1, 2, 3, 4]
        assert kernel(pipe) is first and first.left == {1} and slots(pipe, source) == {b.id: 2}
        c = pipe.view(f"{kind}_c", source)
        pipe.settle()
        assert pipe.keys(c) == [1, 2, 3, 4] and slots(pipe, source) == {b.id: 2, c.id: 3}
        pipe.drop(b, c)
        assert hosting(pipe, source) is None and pipe.world.running == []
        assert not list(pipe.storage.layout.jobs.glob("hosted-*"))


def test_late_rows_of_a_member_are_its_second_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pipeline(tmp_path, monkeypatch) as pipe:
        source = pipe.source()
        a, b = pipe.view("keyed_tardy_a", source), pipe.view("keyed_tardy_b", source)
        late = {o.owner_id: o for o in pipe.storage.catalog.objects() if o.role is Role.LATE_ROWS}
        pipe.insert(source, (1, "x"), (2, LATE))
        pipe.settle()
        c = pipe.view("keyed_c", source)
        pipe.insert(source, (3, LATE), (4, "x"))
        pipe.settle()
        assert pipe.keys(a) == pipe.keys(b) == [1, 4] and pipe.keys(c) == [1, 2, 3, 4]
        assert pipe.keys(late[a.id]) == pipe.keys(late[b.id]) == [2, 3]
        assert [pipe.jobs.late_rows(o) for o in (a, b, c)] == [2, 2, 0]
        assert pipe.jobs.by_object[late[a.id].id] is pipe.jobs.by_object[a.id]
        pipe.drop(late[a.id], a)
        assert not {a.id, late[a.id].id} & set(pipe.jobs.by_object)
        pipe.insert(source, (5, LATE))
        pipe.settle()
        assert pipe.keys(late[b.id]) == [2, 3, 5]
        # What was counted stays counted when the job is another.
        pipe.stop()
        assert pipe.jobs.late_rows(b) == 3
        pipe.start()
        pipe.insert(source, (6, LATE))
        pipe.settle()
        assert pipe.jobs.late_rows(b) == 4 and pipe.keys(late[b.id]) == [2, 3, 5, 6]


def test_members_go_on_after_a_stop_and_another_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with pipeline(tmp_path, monkeypatch) as pipe:
        source = pipe.source()
        a, b = pipe.view(f"{kind}_a", source), pipe.view(f"{kind}_b", source)
        pipe.insert(source, (1, "x"))
        pipe.settle()
        pipe.stop()
        pipe.insert(source, (2, "x"))
        c = pipe.view(f"{kind}_c", source)
        pipe.start()
        pipe.settle()
        assert pipe.keys(a) == pipe.keys(b) == pipe.keys(c) == [1, 2]
    with pipeline(tmp_path, monkeypatch) as pipe:
        pipe.insert(source, (3, "x"))
        pipe.start()
        pipe.settle()
        assert pipe.keys(a) == pipe.keys(b) == pipe.keys(c) == [1, 2, 3]
        assert len(pipe.world.running) == 1


def test_a_join_that_the_catalogue_does_not_have_has_not_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with pipeline(tmp_path, monkeypatch) as pipe:
        source = pipe.source()
        a = pipe.view(f"{kind}_a", source)
        pipe.insert(source, (1, "x"))
        pipe.settle()
        with monkeypatch.context() as patch:

            def full(*_: object) -> None:
                raise FULL

            patch.setattr(catalog_store, "write_catalog", full)
            with pytest.raises(PenstockError, match="PSK-7004"):
                pipe.view(f"{kind}_b", source)
        assert slots(pipe, source) == {a.id: 1}
        pipe.insert(source, (2, "x"))
        pipe.settle()
        assert pipe.keys(a) == [1, 2]
        # A process that ended between the slot and the object leaves a slot of nobody.
        with pipe.storage.catalog.edit():
            ((key, now),) = pipe.storage.catalog.hosted.items()
            pipe.storage.catalog.hosted[key] = replace(now, last=2, members={**now.members, 99: Slot(2, 0)})
    with pipeline(tmp_path, monkeypatch) as pipe:
        pipe.start()
        b = pipe.view(f"{kind}_b", source)
        pipe.settle()
        assert pipe.keys(b) == [1, 2] and slots(pipe, source) == {a.id: 1, b.id: 3}


def test_a_member_that_fails_is_taken_out_and_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with pipeline(tmp_path, monkeypatch) as pipe:
        source = pipe.source()
        a, b, c = (pipe.view(f"{kind}_{n}", source) for n in "abc")
        pipe.insert(source, (1, "x"))
        pipe.settle()
        pipe.world.sensitive.add(f"{kind}_b")
        pipe.insert(source, (2, POISON))
        pipe.settle(a, c)
        assert pipe.keys(a) == pipe.keys(c) == [1, 2]
        eventually(lambda: pipe.error(b) is not None, "the failure is known")
        assert "a poisoned row" in str(pipe.error(b)) and pipe.state(b) is None
        assert pipe.state(a) is JobState.RUNNING and pipe.error(a) is None
        assert slots(pipe, source) == {a.id: 1, c.id: 3}
        pipe.insert(source, (3, "x"))
        pipe.settle(a, c)
        pipe.world.sensitive.clear()
        with pipe.ddl:
            pipe.jobs.halt(b)
            pipe.jobs.start(b)
        pipe.settle()
        assert pipe.keys(a) == pipe.keys(b) == pipe.keys(c) == [1, 2, 3]
        assert slots(pipe, source) == {a.id: 1, c.id: 3, b.id: 4}


def test_the_only_member_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    with pipeline(tmp_path, monkeypatch) as pipe:
        source = pipe.source()
        a = pipe.view(f"{kind}_a", source)
        pipe.world.sensitive.add(f"{kind}_a")
        pipe.insert(source, (1, POISON))
        eventually(lambda: pipe.error(a) is not None and pipe.world.running == [], "the job has ended")
        eventually(lambda: hosting(pipe, source) is None, "the job is gone")
        pipe.world.sensitive.clear()
        with pipe.ddl:
            pipe.jobs.halt(a)
            pipe.jobs.start(a)
        pipe.settle()
        assert pipe.keys(a) == [1]


def test_what_names_no_member_is_tried_again_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with pipeline(tmp_path, monkeypatch) as pipe:
        source = pipe.source()
        a, b = pipe.view(f"{kind}_a", source), pipe.view(f"{kind}_b", source)
        pipe.settle()
        pipe.world.epochs.extend([FULL, fail("PSK-7001", "Spark refuses.")])
        pipe.insert(source, (1, "x"))
        pipe.settle()
        assert pipe.keys(a) == pipe.keys(b) == [1]
        assert slots(pipe, source) == {a.id: 1, b.id: 2}


def test_a_job_that_has_lost_its_checkpoint_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with pipeline(tmp_path, monkeypatch) as pipe:
        source = pipe.source()
        a, b = pipe.view(f"{kind}_a", source), pipe.view(f"{kind}_b", source)
        pipe.insert(source, (1, "x"))
        pipe.settle()
        pipe.stop()
        for folder in pipe.storage.layout.jobs.glob("hosted-*/*"):
            shutil.rmtree(folder)
        pipe.insert(source, (2, "x"))
        pipe.start()
        pipe.settle()
        assert pipe.keys(a) == pipe.keys(b) == [1, 2]


def test_a_member_whose_plan_is_refused_is_taken_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    with pipeline(tmp_path, monkeypatch) as pipe:
        source = pipe.source()
        a, b = pipe.view(f"{kind}_a", source), pipe.view(f"{kind}_b", source)
        pipe.insert(source, (1, "x"))
        pipe.settle()
    with pipeline(tmp_path, monkeypatch) as pipe:
        pipe.planner.refuses.add(f"{kind}_b")
        pipe.insert(source, (2, "x"))
        pipe.start()
        pipe.settle(a)
        assert pipe.keys(a) == [1, 2] and str(pipe.error(b)).startswith("PSK-6003")
        pipe.stop()
        pipe.planner.refuses.clear()
        pipe.insert(source, (3, "x"))
        pipe.start()
        pipe.settle()
        assert pipe.keys(a) == pipe.keys(b) == [1, 2, 3] and pipe.error(b) is None


@pytest.mark.parametrize("seed", range(times(3, quick=2)))
def test_whatever_happens_every_member_has_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    choose = random.Random(seed)
    views: dict[str, ObjectInfo] = {}
    rows = made = 0
    source: ObjectInfo | None = None
    for _ in range(4):
        with pipeline(tmp_path, monkeypatch) as pipe:
            source = source or pipe.source()
            pipe.start()
            for _ in range(12):
                match choose.randrange(7):
                    case 0 if len(views) < 5:
                        made += 1
                        views[f"{kind}_{made}"] = pipe.view(f"{kind}_{made}", source)
                    case 1 if views:
                        pipe.drop(views.pop(choose.choice(sorted(views))))
                    case 2:
                        pipe.world.epochs.append(choose.choice([FULL, fail("PSK-7001", "No."), None]))
                    case 3:
                        pipe.stop()
                        pipe.start()
                    case 4 if views:
                        info = views[choose.choice(sorted(views))]
                        with pipe.ddl:
                            pipe.jobs.halt(info)
                            if choose.random() < 0.5:
                                pipe.jobs.lose(info)
                            pipe.jobs.start(info)
                    case _:
                        rows += 1
                        pipe.insert(source, (rows, "x"))
            pipe.world.epochs.clear()
            pipe.settle()
            for info in views.values():
                assert pipe.keys(info) == list(range(1, rows + 1)), info.name


def test_a_query_without_state_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pipeline(tmp_path, monkeypatch) as pipe:
        source = pipe.source()
        a, b = pipe.view("a", source), pipe.view("b", source)
        pipe.insert(source, (1, "x"))
        pipe.settle()
        # What it has read is not there any more, so it could not begin again.
        pipe.forget_history(source)
        pipe.world.sensitive.add("b")
        lsn = pipe.storage.log.head
        pipe.insert(source, (2, POISON))
        pipe.settle(a)
        eventually(lambda: pipe.error(b) is not None, "the failure is known")
        assert pipe.storage.catalog.solo[b.id].start <= lsn
        pipe.world.starts.append(fail("PSK-7001", "Spark refuses."))
        pipe.stop()
        with suppress(PenstockError):
            pipe.start()
        pipe.stop()
        pipe.world.sensitive.clear()
        pipe.start()
        pipe.insert(source, (3, "x"))
        pipe.settle()
        assert pipe.keys(a) == pipe.keys(b) == [1, 2, 3]
        assert b.id not in pipe.storage.catalog.solo and len(pipe.world.running) == 1


def test_a_query_without_state_whose_plan_is_refused_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pipeline(tmp_path, monkeypatch) as pipe:
        source = pipe.source()
        a, b = pipe.view("a", source), pipe.view("b", source)
        pipe.insert(source, (1, "x"))
        pipe.settle()
        pipe.forget_history(source)
    # The epoch is in the log, and the process has ended before the job knew.
    (file,) = pipe.storage.layout.jobs.glob("hosted-*/*/checkpoint/epoch")
    file.write_text(json.dumps({k: v for k, v in json.loads(file.read_text()).items() if k != "after"}))
    with pipeline(tmp_path, monkeypatch) as pipe:
        pipe.planner.refuses.add("b")
        pipe.insert(source, (2, "x"))
        pipe.start()
        pipe.settle(a)
        pipe.stop()
        pipe.planner.refuses.clear()
        pipe.insert(source, (3, "x"))
        pipe.start()
        pipe.settle()
        assert pipe.keys(a) == pipe.keys(b) == [1, 2, 3]


def test_a_new_query_reads_nothing_that_was_trimmed_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pipeline(tmp_path, monkeypatch) as pipe:
        source = pipe.source()
        pipe.insert(source, (1, "x"))
        pipe.forget_history(source)
        a = pipe.view("a", source)
        found = hosting(pipe, source)
        assert found is not None and found.members[a.id].start == pipe.storage.log.head > 0


def test_queries_with_and_without_state_have_jobs_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pipeline(tmp_path, monkeypatch) as pipe:
        source = pipe.source()
        a, b = pipe.view("a", source), pipe.view("keyed_b", source)
        assert set(pipe.storage.catalog.hosted) == {f"s{source.id}", f"{source.id}"}
        pipe.insert(source, (1, "x"))
        pipe.settle()
        assert pipe.keys(a) == pipe.keys(b) == [1]


def test_a_disk_that_refuses_leaves_members_what_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Queries come and go while every other write of the catalogue fails."""
    with pipeline(tmp_path, monkeypatch) as pipe:
        source = pipe.source()
        a = pipe.view(f"{kind}_a", source)
        writes, write = itertools.count(), catalog_store.write_catalog

        def refusing(*args: Any) -> None:
            if next(writes) % 2:
                raise FULL
            write(*args)

        with monkeypatch.context() as patch:
            patch.setattr(catalog_store, "write_catalog", refusing)
            for n in range(6):
                pipe.insert(source, (n, "x"))
                with suppress(PenstockError):
                    pipe.drop(pipe.view(f"{kind}_{n}", source))
        for info in pipe.storage.catalog.objects(Kind.VIEW):
            if info.id != a.id:
                pipe.drop(info)
        pipe.settle()
        assert pipe.keys(a) == list(range(6)) and list(slots(pipe, source)) == [a.id]


def test_a_member_that_cannot_begin_again_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint of their job is gone, and the history of the input with it: only a query that has emitted nothing can begin."""
    with pipeline(tmp_path, monkeypatch) as pipe:
        source = pipe.source()
        a = pipe.view("a", source)
        pipe.insert(source, (1, "x"))
        pipe.settle()
        pipe.forget_history(source)
        b = pipe.view("b", source)
        pipe.settle()
        pipe.stop()
        for folder in pipe.storage.layout.jobs.glob("hosted-*/*"):
            shutil.rmtree(folder)
        pipe.start()
        pipe.insert(source, (2, "x"))
        pipe.settle(b)
        assert pipe.keys(b) == [2] and pipe.keys(a) == [1] and str(pipe.error(a)).startswith("PSK-5011")


def test_a_query_without_state_that_is_released_does_not_go_on_with_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pipeline(tmp_path, monkeypatch) as pipe:
        source = pipe.source()
        a, b = pipe.view("a", source), pipe.view("b", source)
        pipe.insert(source, (1, "x"))
        pipe.settle()
        pipe.world.sensitive.add("b")
        pipe.insert(source, (2, POISON))
        pipe.settle(a)
        eventually(lambda: b.id in pipe.storage.catalog.solo, "where it goes on is known")
        eventually(lambda: pipe.error(b) is not None, "the failure is known")
        own = pipe.storage.layout.job(b.id)
        own.mkdir(parents=True, exist_ok=True)
        pipe.jobs.release(b)
        assert not own.exists()
        pipe.forget_history(source)
        pipe.world.sensitive.clear()
        with pipe.ddl, pytest.raises(PenstockError, match="PSK-5011"):
            pipe.jobs.start(b)
        assert pipe.keys(a) == [1, 2] and pipe.keys(b) == [1]
