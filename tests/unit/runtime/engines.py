"""An engine without a JVM: everything is real except Spark, which fake kernels and a fake compiler replace."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.kernels import World
from tests.unit.runtime.pipelines import stand_in
from tests.unit.runtime.storing import PATIENCE_S, Rows, in_contents, settings, unsynced

from penstock.catalog.objects import Column
from penstock.plan import nodes as p
from penstock.runtime import engine as engine_module
from penstock.runtime.engine import QUERIES, Engine
from penstock.runtime.jobs import planned as planned_module
from penstock.runtime.statements.execute import execute
from penstock.runtime.statements.session import Session
from penstock.spark.compile import Compiled, Output
from penstock.spark.hosted import Membership


class Batch:
    """Stands in for what Spark says of columns."""

    def constants(self, given: Sequence[object]) -> dict[str, object]:
        return {}

    def check_columns(self, columns: Sequence[Column]) -> None: ...

    def schema(self, sql: str, tables: Any) -> tuple[Column, ...]:
        return ()


class Sameness:
    """Stands in for what Spark's parser says of expressions."""

    def difference(self, found: object) -> None: ...


class Compute:
    """Stands in for the JVM."""

    def __init__(self, storage: object) -> None:
        self.uid, self.spark, self.parallelism, self.batch = "u", None, 1, Batch()
        self.sameness = Sameness()

    def close(self) -> None: ...


class Compiler:
    """Compiles a query to a copy of the rows that it scans."""

    def __init__(self, spark: object, job: str, objects: Any, parallelism: int, **_: bool) -> None:
        self._objects = objects

    def compile(self, query: p.Query) -> Compiled:
        scans = [n for n in query.root.walk() if isinstance(n, p.Scan)]
        types = {c.name: c.type for s in scans for c in self._objects(s.object_id).columns}
        columns = tuple(Column(n, types.get(n, "bigint")) for n in query.names)
        ids = list(dict.fromkeys(s.object_id for s in scans))
        frame: Any = None
        output = Output(columns, query.root.changelog, False)
        return Compiled(
            frame=frame,
            outputs=[output],
            slots=[list(range(len(columns)))],
            befores=[-1],
            objects=ids,
            timed=[],
            times=(),
            event_time=False,
            root=query.root,
        )


class Database:
    """An open engine and one session of it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(engine_module, "Compute", Compute)
        monkeypatch.setattr(engine_module, "watch", lambda died: lambda: None)
        monkeypatch.setattr(engine_module, "keep_classes", lambda: None)
        monkeypatch.setattr(planned_module, "Compiler", Compiler)
        monkeypatch.setattr(planned_module, "unfit", lambda query: None)
        monkeypatch.setattr(planned_module, "membership", lambda c: Membership(None, "", tuple(c.objects), (), 0))
        self.engine = Engine(folder, settings())
        self.world = World(self.engine.storage)
        stand_in(monkeypatch, self.world)
        self.session = Session(self.engine)

    def run(self, sql: str) -> Any:
        return execute(self.session, sql)

    def insert(self, name: str, *rows: tuple[Any, ...]) -> None:
        self.engine.writer.insert(name, list(rows))

    def rows(self, name: str) -> Rows:
        """The rows of a table or view, when all queries have caught up."""
        info = self.engine.catalog.get(name)
        assert info is not None
        for o in self.engine.catalog.objects(*QUERIES):
            if self.engine.running:
                assert self.engine.jobs.settle(o, self.engine.log.head, time.monotonic() + PATIENCE_S), f"{o.name} lags"
        return in_contents(self.engine.storage, info)

    def state(self) -> dict[str, Any]:
        """Everything that a statement could leave behind."""
        engine, storage = self.engine, self.engine.storage
        jobs = storage.layout.jobs
        shared = {key: set(h.members) for key, h in engine.catalog.hosted.items()}
        return {
            "objects": engine.catalog.objects(),
            "plans": dict(engine.catalog.plans),
            "shared": shared,
            "solo": dict(engine.catalog.solo),
            "attached": sorted(storage._attached),
            "feeds": sorted(storage.feeds),
            "contents": storage.store.ids(),
            "channels": sorted(storage.hub.stats()),
            "log": storage.log.object_ids(),
            "jobs": sorted(engine.jobs.by_object),
            "planned": sorted(engine.jobs.planned),
            "queries": len(self.world.running),
            "sinks": sorted(engine.sinks),
            "intakes": sorted(engine.intakes),
            "lookups": sorted(engine.lookups),
            "folders": sorted(f.name for f in jobs.glob("[0-9]*")) if jobs.exists() else [],
            "shared folders": sorted(f.name for f in jobs.glob("hosted-*") if any(f.iterdir())),
            "snapshots": sorted(f.name for f in storage.layout.root.glob("views/*")),
        }


@contextmanager
def database(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """An engine on a folder; nothing of it runs on afterwards."""
    uncaught: list[BaseException] = []
    with unsynced(), monkeypatch.context() as patch:
        patch.setattr(threading, "excepthook", lambda args: uncaught.append(args.exc_value or args.exc_type()))
        made = Database(folder, patch)
        try:
            yield made
        finally:
            made.engine.close()
        assert made.world.running == [], "a query runs that nobody knows of"
        if uncaught:
            raise uncaught[0]
