"""Batches small changes of an object without a key for DuckDB, where a statement takes milliseconds for any number of rows."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from penstock.serve.layout import WEIGHT
from penstock.serve.zset import weighted

_SMALL_CHANGE = 256
_SMALL_BYTES = 65_536


class Gathered:
    """The pending changes of one object. `stored_epoch` and `stored_lsn` are the position of DuckDB, without them. Not thread-safe: the view store has a lock."""

    def __init__(self, schema: pa.Schema, *, append_only: bool) -> None:
        self.waiting: list[pa.RecordBatch] = []
        self.waiting_rows = 0
        self.waiting_bytes = 0
        self.stored_epoch = 0
        self.stored_lsn = 0
        self._append_only = append_only
        self._schema = schema if append_only else schema.append(pa.field(WEIGHT, pa.int64()))

    def offer(self, change: pa.Table) -> Callable[[], None] | None:
        """A call that makes a change pending; None if the change is too large, or DuckDB would refuse it."""
        if change.num_rows > _SMALL_CHANGE or change.nbytes > _SMALL_BYTES:
            return None
        if self._append_only and WEIGHT in change.column_names:
            weights = change[WEIGHT]
            if pc.min(weights).as_py() != 1 or pc.max(weights).as_py() != 1:
                return None
        kept = (change if self._append_only else weighted(change)).select(self._schema.names)
        try:
            kept.validate(full=True)
        except pa.ArrowInvalid:
            return None
        return lambda: self._take(kept)

    def _take(self, change: pa.Table) -> None:
        for batch in change.to_batches():
            # A copy: the rows may be a small part of memory that is freed when the epoch is done.
            message = batch.serialize()
            self.waiting.append(pa.ipc.read_record_batch(message, batch.schema))
            self.waiting_bytes += message.size
        self.waiting_rows += change.num_rows

    def change(self) -> pa.Table:
        """All pending changes."""
        return pa.Table.from_batches(self.waiting)

    def stored(self, change: pa.Table, epoch: int, lsn: int) -> None:
        """Notes that all pending changes are in DuckDB."""
        self.waiting, self.waiting_rows, self.waiting_bytes = [], 0, 0
        self.stored_epoch, self.stored_lsn = epoch, lsn

    def passed(self, change: pa.Table) -> None:
        """Notes that a change went straight to DuckDB."""


__all__ = ["Gathered"]
