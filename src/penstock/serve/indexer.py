"""Builds the indexes of objects whose rows are read by key, concurrently with readers and the writer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.serve.duck import Cursor, Duck
from penstock.serve.keyindex import Run, contents_run
from penstock.serve.layout import TableLayout
from penstock.serve.recent import Recent
from penstock.serve.worker import Worker

_logger = logging.getLogger(__name__)

_SHARE = 4
"""All indexes together take at most this share of DuckDB's memory limit, besides DuckDB's memory."""


class Indexer:
    """One thread. For each submitted object it

    1. takes a snapshot of DuckDB, with the lock; from then on the object collects its changes;
    2. reads and sorts the rows, without the lock;
    3. installs the index with the collected changes, with the lock; evicts the least recently used indexes if there is no room.

    Without an index, because it does not fit or cannot be built, single rows come from a cache or from DuckDB.
    """

    def __init__(
        self,
        duck: Duck,
        lock: threading.RLock,
        layouts: Mapping[int, TableLayout],
        fix: Callable[[Cursor, int], object],
    ) -> None:
        self._duck = duck
        self._lock = lock
        self._layouts = layouts
        self._fix = fix
        self._most_bytes = duck.limit // _SHARE
        self._worker = Worker("penstock-indexer")

    def submit(self, layout: TableLayout, recent: Recent) -> None:
        self._worker.submit(lambda: self._run(layout, recent))

    def settle(self) -> None:
        """Waits for everything submitted so far."""
        self._worker.run(lambda: None)

    def close(self, timeout: float) -> bool:
        return self._worker.close(timeout)

    def _run(self, layout: TableLayout, recent: Recent) -> None:
        try:
            contents = self._contents(layout, recent)
            with self._lock:
                if contents is None:
                    recent.refuse_index()
                else:
                    self._make_room(recent, contents.size)
                    recent.install(contents)
        except (PenstockError, pa.ArrowException, MemoryError) as why:
            # An object that was dropped meanwhile needs no index.
            if not self._duck.closed and self._layouts.get(layout.id) is layout:
                _logger.warning("object %d of the view store was not indexed: %s", layout.id, why)
        finally:
            with self._lock:
                recent.end_build()

    def _contents(self, layout: TableLayout, recent: Recent) -> Run | None:
        """The rows by key; None if they need too much memory."""
        with self._duck.cursor() as con:
            with self._lock:
                if layout.disk is not None:
                    return None  # It has been moved to disk meanwhile.
                self._fix(con, layout.id)
                recent.collect()
            batches, size = [], 0
            with self._duck.batches(con, f"SELECT * FROM {layout.view}") as reader:
                for batch in reader:
                    size += batch.nbytes
                    if size > self._most_bytes:
                        return None
                    batches.append(batch)
                table = pa.Table.from_batches(batches, reader.schema).cast(layout.schema)
        return contents_run(table, recent.keys)

    def _make_room(self, wanted: Recent, size: int) -> None:
        indexed = [(r, r.index) for o in self._layouts.values() if (r := o.recent) is not None and r is not wanted]
        sizes = {r: index.size for r, index in indexed if index is not None}
        left = size + sum(sizes.values())
        for recent in sorted(sizes, key=lambda r: r.last_read):
            if left <= self._most_bytes:
                return
            recent.drop_index()
            left -= sizes[recent]
