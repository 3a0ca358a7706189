"""LaminarDB, through its Python package, in memory. Its windows take epoch milliseconds, so `ts` is a BIGINT here."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from benchmarks.data import millis
from benchmarks.engines.query import Query

SOURCE = "CREATE SOURCE s (k BIGINT, v BIGINT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)"


class LaminarQuery(Query):
    """One stream over one source in a database of its own: a stream cannot be added to one that runs."""

    def __init__(self, select: str) -> None:
        import laminardb

        self._silence = laminardb.SubscriptionError
        self._db: Any = laminardb.open(":memory:")
        self._db.execute(SOURCE)
        self._db.execute("CREATE STREAM q AS " + select.format(source="s"))
        self._db.start()
        self._changes = self._db.subscribe_stream("q")

    def prepare(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return millis(batch)

    def push(self, batch: pa.RecordBatch) -> None:
        self._db.insert("s", batch)

    def poll(self, timeout: float) -> pa.Table | None:
        try:
            result = self._changes.next_timeout(int(timeout * 1_000))
        except self._silence as error:
            if "timeout" in str(error).lower():
                return None
            raise
        return None if result is None else result.arrow()

    def close(self) -> None:
        self._changes.cancel()
        self._db.close()
