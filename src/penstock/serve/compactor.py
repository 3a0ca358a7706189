"""Folding of deltas into the base of an object, beside readers and the writer."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

import duckdb

from penstock.errors import PenstockError
from penstock.serve.layout import Layout

Job = tuple[Layout, Callable[[], bool]]


class Compactor:
    """One thread. For each submitted object it

    1. writes a new base from the old one and the deltas that are closed (all but the last), without the lock;
    2. puts it in their place, with the lock, in one transaction; readers that began before keep what they saw.
    """

    def __init__(
        self,
        cursor: duckdb.DuckDBPyConnection,
        lock: threading.RLock,
        transaction: Callable[[], AbstractContextManager[duckdb.DuckDBPyConnection]],
        failure: Callable[[int], AbstractContextManager[None]],
    ) -> None:
        self._cursor = cursor
        self._lock = lock
        self._transaction = transaction
        self._failure = failure
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self._thread: threading.Thread | None = None

    def submit(self, layout: Layout, alive: Callable[[], bool]) -> None:
        """Called with the lock held. `alive` says whether the object is still there."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="penstock-compactor", daemon=True)
            self._thread.start()
        self._jobs.put((layout, alive))

    def settle(self) -> None:
        self._jobs.join()

    def close(self) -> None:
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
        self._cursor.close()

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                if job is None:
                    return
                self._compact(*job)
            finally:
                self._jobs.task_done()

    def _compact(self, layout: Layout, alive: Callable[[], bool]) -> None:
        with self._lock:
            if not alive():
                return
            base, deltas = layout.base, layout.deltas[:-1]
            fresh = layout.next_table()
        try:
            with self._failure(layout.id):
                self._cursor.execute(f"CREATE TABLE {fresh} AS {layout.reading(base=base, deltas=deltas)}")
                counted = self._cursor.execute(f"SELECT count(*) FROM {fresh}").fetchone()
        except PenstockError as why:
            with self._lock:
                # An object dropped meanwhile took its tables along: that is no damage.
                if alive():
                    layout.damage = why.detail
            return
        with self._lock:
            if not alive():
                self._cursor.execute(f"DROP TABLE {fresh}")
                return
            layout.base, layout.deltas = fresh, layout.deltas[-1:]
            layout.base_rows = counted[0] if counted else 0
            layout.compacting = False
            with self._transaction() as con:
                con.execute(f"CREATE OR REPLACE VIEW {layout.view} AS {layout.reading()}")
                for table in (base, *deltas):
                    con.execute(f"DROP TABLE {table}")
