"""Queries of a database without a JVM: real storage, real jobs, fake kernels."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.runtime.kernels import Compiled, HostKernel, Output, World
from tests.unit.runtime.storing import Row, in_log, make, opened, part

from penstock.catalog.objects import Kind, ObjectInfo, Role
from penstock.errors import PenstockError, fail
from penstock.runtime.jobs import hosted as hosted_module
from penstock.runtime.jobs import job as job_module
from penstock.runtime.jobs import jobs as jobs_module
from penstock.runtime.jobs.jobs import QUERIES, Jobs
from penstock.runtime.jobs.limits import UNLIMITED
from penstock.runtime.lifecycle import JobState
from penstock.runtime.storage.storage import Storage
from penstock.spark.hosted import Membership


class Planner:
    """Plans every query as a copy of what it depends on. `refuses`: names that it does not plan."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.refuses: set[str] = set()

    def stored(self, info: ObjectInfo, catalog: object = None, *, begins: bool = False) -> Any:
        if info.name in self.refuses:
            raise fail("PSK-6003", f"The plan of {info.name} is another.")
        return planned(info)


KEYED, ALONE, TARDY = "keyed", "alone", "tardy"
"""A query that shares a job with other keyed ones, has a job of its own, or a stream of late rows, has this in its name. All others share a job without state."""


def planned(info: ObjectInfo) -> Any:
    outputs = [Output(info.changelog), *([Output(False)] if TARDY in info.name else [])]
    compiled = Compiled((info.name,), list(info.depends_on), outputs)
    return SimpleNamespace(
        job=info.name,
        query=compiled,
        compiled=compiled,
        output_ids=(info.id,),
        idle_ms={},
        every_ms=0,
        seeds=(),
        limits=UNLIMITED,
        closings=frozenset(),
        membership=None if ALONE in info.name else Membership(None, "", info.depends_on, (), int(KEYED in info.name)),
    )


def stand_in(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    """Lets jobs run on the kernels of a world."""
    monkeypatch.setattr(jobs_module, "KernelJob", world.kernel)
    monkeypatch.setattr(hosted_module, "HostJob", world.host)
    monkeypatch.setattr(
        hosted_module, "compile_host", lambda _, infos, timed: Compiled(("host",), [info.id for info in infos], [])
    )
    monkeypatch.setattr(job_module, "HostJob", HostKernel)
    monkeypatch.setattr(job_module, "wait_s", lambda failures: 0.001)
    monkeypatch.setattr(job_module, "_POLL_MS", 20)


class Pipeline:
    """A running pipeline. Queries are named; all of them copy one source, unless they are told otherwise."""

    def __init__(self, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.storage = storage
        self.world = World(storage)
        stand_in(monkeypatch, self.world)
        self.on = True
        self.ddl = threading.RLock()
        compute: Any = SimpleNamespace(uid="u", spark=None, parallelism=1)
        self.jobs = Jobs(storage, compute, self.ddl, {}, lambda: self.on)
        self.planner = Planner(storage)
        self.jobs.planner = self.planner  # type: ignore[assignment]

    def source(self, name: str = "s") -> ObjectInfo:
        return make(self.storage, name, Kind.SOURCE)

    def insert(self, source: ObjectInfo, *rows: Row) -> int:
        return self.storage.commit([part(source, *rows)]).lsn

    def forget_history(self, source: ObjectInfo) -> None:
        """Trims the log, so that a new query has nothing to read first."""
        self.storage.log.trim({source.id: self.storage.log.head})

    def view(self, name: str, source: ObjectInfo, **more: Any) -> ObjectInfo:
        """A view that is started before the catalogue has it, as a statement does it."""
        info = ObjectInfo(
            self.storage.catalog.new_id(),
            name,
            Kind.VIEW,
            source.columns,
            changelog=True,
            depends_on=(source.id,),
            **more,
        )
        late = replace(
            info,
            id=self.storage.catalog.new_id(),
            name=f"late_{name}",
            kind=Kind.STREAM,
            changelog=False,
            depends_on=(info.id,),
            role=Role.LATE_ROWS,
            owner_id=info.id,
        )
        made = [info, late] if TARDY in name else [info]
        for o in made:
            self.storage.attach(o)
        try:
            with self.ddl:
                if self.on:
                    self.jobs.start(info, planned(info))
                self.storage.catalog.add(*made)
        except BaseException:
            self.jobs.forget(info)
            for o in made:
                self.storage.detach(o.id)
            raise
        return info

    def drop(self, *infos: ObjectInfo) -> None:
        with self.ddl:
            self.storage.catalog.remove(*(i.id for i in infos))
            for info in infos:
                if info.kind in QUERIES:
                    self.jobs.forget(info)
                self.storage.detach(info.id)

    def stop(self) -> None:
        with self.ddl:
            self.on = False
            assert self.jobs.stop_all(time.monotonic() + 30) == []

    def start(self) -> None:
        with self.ddl:
            self.on = True
            self.jobs.start_all()

    def settle(self, *infos: ObjectInfo) -> None:
        for info in infos or self.storage.catalog.objects(*QUERIES):
            assert self.jobs.settle(info, self.storage.log.head, time.monotonic() + 10), f"{info.name} lags"

    def keys(self, info: ObjectInfo) -> list[int]:
        """The keys in the log of a query, each as often as it was emitted."""
        return sorted(k for (k, _), n in in_log(self.storage, info).items() for _ in range(n))

    def state(self, info: ObjectInfo) -> JobState | None:
        job = self.jobs.by_object.get(info.id)
        return job.state if job is not None else None

    def error(self, info: ObjectInfo) -> PenstockError | None:
        trouble = self.jobs.trouble(info)
        return trouble.error if trouble is not None else None


@contextmanager
def pipeline(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    """A pipeline on a folder; nothing of it runs on afterwards."""
    with opened(folder) as storage, on_storage(storage, monkeypatch) as made:
        yield made


@contextmanager
def on_storage(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    uncaught: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr(threading, "excepthook", lambda args: uncaught.append(args.exc_value))
        made = Pipeline(storage, patch)
        try:
            yield made
        finally:
            made.stop()
        assert made.world.running == [], "a query runs that nobody knows of"
        assert uncaught == []
