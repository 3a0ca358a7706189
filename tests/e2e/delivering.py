"""A process that commits rows and delivers them to sinks of every kind, until it is killed at the step that its environment names.

Commit N has one row of `events`, and a change of `totals`, whose row for the key N % KEYS is the number of commits with that key.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.catalog.objects import Column, Connector, Kind, ObjectInfo
from penstock.catalog.types import stored_schema
from penstock.config import Settings
from penstock.connect import Access, register_callable
from penstock.disk import sync_folder, write_durably
from penstock.log import Part
from penstock.runtime.connect.sinks import SinkRunner
from penstock.runtime.storage.position import Position, position_file
from penstock.runtime.storage.storage import Storage

KEYS = 7
ROUND = 5
"""So many commits are delivered before the next ones come."""


@dataclass(frozen=True)
class Task:
    folder: str
    commits: int
    url: str
    password: str
    append: str
    upsert: str


class Ledger:
    """A transactional object: a folder with a file for each epoch, which is hidden until it is committed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def begin(self, epoch: int) -> None: ...

    def write(self, epoch: int, table: pa.Table) -> None:
        write_durably(self.folder / f"{epoch}.waits", json.dumps(table["n"].to_pylist()).encode())

    def pre_commit(self, epoch: int) -> None:
        sync_folder(self.folder)

    def commit(self, epoch: int) -> None:
        for file in self.folder.glob("*.waits"):
            if int(file.stem) <= epoch:
                # A line is added, so that an epoch that is committed twice shows.
                with (self.folder / f"{file.stem}.done").open("a") as done:
                    done.write(file.read_text() + "\n")
                file.unlink()

    def rollback(self, epoch: int) -> None:
        for file in self.folder.glob("*.waits"):
            if int(file.stem) >= epoch:
                file.unlink()


def objects(storage: Storage, task: Task) -> tuple[ObjectInfo, ObjectInfo, list[ObjectInfo]]:
    """The two streams and the sinks, made by the first process."""
    if not storage.catalog.objects():
        number = Column("n", "bigint", nullable=False)

        def add(name: str, kind: Kind, columns: tuple[Column, ...], **more: Any) -> ObjectInfo:
            made = ObjectInfo(storage.catalog.new_id(), name, kind, columns, **more)
            storage.catalog.add(made)
            return made

        events = add("events", Kind.STREAM, (number,))
        totals = add("totals", Kind.STREAM, (Column("k", "bigint", nullable=False), number), changelog=True)
        server = {"url": task.url, "password": task.password}
        for name, of, connector in (
            ("files", events, Connector("files", {"path": f"{task.folder}/files", "format": "json"})),
            ("ledger", events, Connector("python", {"callable": "ledger"})),
            ("append", events, Connector("postgres", {**server, "table": task.append})),
            ("upsert", totals, Connector("postgres", {**server, "table": task.upsert, "mode": "upsert"})),
        ):
            add(name, Kind.SINK, of.columns, changelog=of.changelog, connector=connector, depends_on=(of.id,),
                options={"guarantee": "exactly-once"}, identity=uuid.uuid4().hex)  # fmt: skip
    known = {o.name: o for o in storage.catalog.objects()}
    for info in known.values():
        storage.attach(info)
        # A kill may have come before it was written.
        file = position_file(storage.layout, info)
        if info.kind is Kind.SINK and not file.exists() and not storage.log.epoch(known["events"].id):
            file.write(Position())
    return known["events"], known["totals"], [o for o in known.values() if o.kind is Kind.SINK]


def part(info: ObjectInfo, *rows: tuple[int, ...]) -> Part:
    schema = stored_schema(info)
    batch = pa.RecordBatch.from_pylist([dict(zip(schema.names, r, strict=True)) for r in rows], schema)
    return Part(info.id, (batch,), column_count=len(schema))


def main() -> None:
    task = Task(**json.loads(sys.argv[1]))
    storage = Storage(Path(task.folder) / "data", Settings())
    register_callable("ledger", Ledger(Path(task.folder) / "ledger"))
    events, totals, sinks = objects(storage, task)
    runners = [SinkRunner(storage, s, lambda: Access(roots=(Path(task.folder),)), lambda: None) for s in sinks]
    done = storage.log.epoch(events.id)
    for n in range(done, task.commits):
        key, count = n % KEYS, n // KEYS
        before = [(key, count, -1)] if count else []
        storage.commit([part(events, (n,)), part(totals, *before, (key, count + 1, 1))])
        if n % ROUND == 0 or n == task.commits - 1:
            for runner in runners:
                assert runner.settle(time.monotonic() + 60)
    for runner in runners:
        assert runner.settle(time.monotonic() + 60), (runner.name, runner.error)
        runner.stop()
    storage.close()
    os.write(1, b"done\n")


def started(task: Task) -> str:
    """The argument of the process."""
    return json.dumps(asdict(task))


if __name__ == "__main__":
    main()
