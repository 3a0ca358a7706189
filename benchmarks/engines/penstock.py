"""Penstock, through its public API, in a folder of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.engines.query import Query

if TYPE_CHECKING:
    import penstock

MASTER = "local[2]"
SOURCE = "CREATE SOURCE {name} (k BIGINT, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)"


@contextmanager
def opened() -> Iterator[penstock.Database]:
    """A new, durable database."""
    import penstock

    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        with penstock.open(folder / "data", master=MASTER) as db:
            yield db
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class PenstockQuery(Query):
    """A stream over a source of its own, and one subscriber."""

    def __init__(self, db: penstock.Database, name: str, select: str) -> None:
        self._db = db
        self._source = f"{name}_in"
        self._stream = name
        db.execute(SOURCE.format(name=self._source))
        db.execute(f"CREATE STREAM {name} AS " + select.format(source=self._source))
        self._changes = db.subscribe(name)

    def push(self, batch: pa.RecordBatch) -> None:
        self._db.insert(self._source, batch)

    def poll(self, timeout: float) -> pa.Table | None:
        change = self._changes.next(timeout)
        return None if change is None else change.arrow()

    def close(self) -> None:
        self._changes.cancel()
        self._db.execute(f"DROP STREAM {self._stream}; DROP SOURCE {self._source}")


def jvm_pid(db: Any) -> int:
    """The process of the driver JVM."""
    return int(db.spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
