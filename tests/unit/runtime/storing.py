"""An open storage without an engine, objects in it, and ways to look at what it holds."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.catalog.objects import Column, Kind, ObjectInfo
from penstock.catalog.types import schema_of, stored_schema
from penstock.config import Settings
from penstock.log import Part
from penstock.runtime.storage.contents import read_entry
from penstock.runtime.storage.position import Position, position_file
from penstock.runtime.storage.storage import Storage
from penstock.serve.options import SubscribeOptions
from penstock.serve.origin import Origin, Past
from penstock.serve.subscription import Subscription

COLUMNS = (Column("k", "bigint", nullable=False), Column("v", "string"))
Row = tuple[Any, ...]
PATIENCE_S = 60.0
"""How long a test waits for what must happen: only a failure takes so long, and a machine may be very busy."""
Rows = Counter[Row]


def settings(**sections: dict[str, object]) -> Settings:
    """Settings in which commits do not wait for the disk, unless the test says so."""
    log = {"wal_mode": "async"} | sections.pop("log", {})
    return Settings(log=log, **sections)  # type: ignore[arg-type]


@contextmanager
def opened(folder: Path, **sections: dict[str, object]) -> Iterator[Storage]:
    """The storage of a folder with all objects of its catalogue attached; closed at the end, so that it can be opened again."""
    with unsynced():
        storage = Storage(folder, settings(**sections))
        try:
            for info in storage.catalog.objects():
                storage.attach(info)
            yield storage
        finally:
            storage.close()


@contextmanager
def unsynced() -> Iterator[None]:
    """Files are written and renamed as ever, but nobody waits for the disk. These tests end no process in the middle."""
    before = os.fsync
    os.fsync = lambda fd: None
    try:
        yield
    finally:
        os.fsync = before


_numbers = itertools.count()


def fresh(name: str) -> str:
    """A name that no other object has: several tests may share a storage."""
    return f"{name}{next(_numbers)}"


def make(storage: Storage, name: str, kind: Kind = Kind.TABLE, **more: Any) -> ObjectInfo:
    """An object in the catalogue, attached. Of a table the key is `k`, unless the test says otherwise."""
    given: dict[str, Any] = {"columns": COLUMNS, "changelog": kind is not Kind.SOURCE}
    if kind in (Kind.TABLE, Kind.LOOKUP):
        given["key"] = ("k",)
    info = ObjectInfo(id=storage.catalog.new_id(), name=name, kind=kind, **(given | more))
    storage.catalog.add(info)
    storage.attach(info)
    if kind is Kind.SINK:
        position_file(storage.layout, info).write(Position())
    return info


def drop(storage: Storage, info: ObjectInfo) -> None:
    storage.catalog.remove(info.id)
    storage.detach(info.id)


def part(info: ObjectInfo, *rows: Row, **more: Any) -> Part:
    """Rows as they are stored: for a changelog the last value of each is its weight."""
    schema = stored_schema(info)
    table = pa.Table.from_pylist([dict(zip(schema.names, r, strict=True)) for r in rows], schema)
    return Part(info.id, tuple(table.to_batches()) if rows else (), column_count=len(schema), **more)


def added(table: pa.Table) -> Rows:
    """The rows of a Z-set, or of a plain table, by how often they are there; zeros are left out."""
    weights = table.column("__weight").to_pylist() if "__weight" in table.column_names else [1] * table.num_rows
    columns = [table.column(n).to_pylist() for n in table.column_names if n != "__weight"]
    found: Rows = Counter()
    for row, weight in zip(zip(*columns, strict=True), weights, strict=True):
        found[row] += weight
    return Counter({r: n for r, n in found.items() if n})


def in_log(storage: Storage, info: ObjectInfo) -> Rows:
    """What the retained entries of an object add up to."""
    schema = stored_schema(info)
    tables = [read_entry(storage.log, e, schema) for e in storage.log.entries(info.id) if e.rows]
    return added(pa.concat_tables(tables)) if tables else Counter()


def in_contents(storage: Storage, info: ObjectInfo) -> Rows:
    storage.check_sound(info)
    return added(storage.store.snapshot(info.id)[0])


def follow(storage: Storage, info: ObjectInfo, **options: Any) -> Subscription:
    """A subscription from now on, with retractions and assertions; one that falls behind reads from the log."""
    schema = stored_schema(info)

    def history(after: int) -> Iterator[Past] | None:
        if not storage.log.reaches_back(info.id, after):
            return None
        entries = storage.log.iterate(info.id, storage.log.lsn_at_epoch(info.id, after))
        return (Past(e.epoch, e.lsn, read_entry(storage.log, e, schema)) for e in entries)

    contents = (lambda: storage.store.snapshot(info.id)) if info.has_contents else None
    origin = Origin(schema_of(info.columns), snapshot=contents, history=history)
    return storage.hub.subscribe(info.id, origin, SubscribeOptions(**options))


def read(subscription: Subscription, up_to: int) -> list[tuple[int, Rows]]:
    """The LSNs and rows of the changes up to an LSN."""
    found: list[tuple[int, Rows]] = []
    while not found or found[-1][0] < up_to:
        change = subscription.next(timeout=PATIENCE_S)
        assert change is not None, f"nothing came after {found[-1:]}"
        found.append((change.lsn, added(change.table)))
    return found


def summed(parts: Iterable[Rows]) -> Rows:
    total: Rows = Counter()
    for p in parts:
        for row, n in p.items():
            total[row] += n
    return Counter({r: n for r, n in total.items() if n})


def eventually(condition: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
    """Returns when a condition holds; fails if it does not within a bound."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.002)


def together(works: Sequence[Callable[[], None]], seconds: float = 30.0) -> None:
    """Runs works at the same time; the first error of any is raised."""
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(w,), daemon=True) for w in works]
    for t in threads:
        t.start()
    for t in threads:
        t.join(seconds)
        assert not t.is_alive(), "a thread is stuck"
    if errors:
        raise errors[0]
