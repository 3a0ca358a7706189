"""Sources of one watermark group, which wait for each other. Event times are milliseconds; the group `g` allows a drift of 10."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.unit.runtime.engines import Database
from tests.unit.runtime.storing import PATIENCE_S, eventually, in_log

from penstock.api.source import SourceHandle
from penstock.catalog.objects import Column
from penstock.errors import PenstockError
from penstock.runtime.statements.inspect import ObjectStatus, status

GROUP = {"watermark_group": "g", "max_drift": "10 milliseconds", "max_future_skew": "off"}
COLUMNS = (Column("k", "bigint"), Column("ts", "bigint"))


def source(name: str, *, columns: str = "k BIGINT, ts BIGINT, WATERMARK FOR ts", feed: str = "", **options: str) -> str:
    with_ = ", ".join(f"{k} = '{v}'" for k, v in (GROUP | options).items())
    return f"CREATE SOURCE {name} ({columns}) {feed} WITH ({with_});"


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
        self._thread.join(PATIENCE_S)
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
