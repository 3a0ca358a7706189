"""Folds the deltas of an object into its base, concurrently with readers and the writer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.errors import PenstockError, fail
from penstock.serve.duck import Duck, Explain
from penstock.serve.layout import TableLayout
from penstock.serve.worker import Worker

_logger = logging.getLogger(__name__)


class Compactor:
    """One thread. For each submitted object it

    1. writes a new base from the old one and the closed deltas (all but the last), without the lock;
    2. swaps it in, with the lock, in one transaction; earlier readers keep their snapshot.

    If that fails, the object is damaged: `damaged` is called with the cause, and other objects are not affected. Out of memory (PSK-7009) is not
    damage: the object is unchanged, and is submitted again when it has grown.
    """

    def __init__(
        self,
        duck: Duck,
        lock: threading.RLock,
        explain: Callable[[int], Explain],
        damaged: Callable[[TableLayout, PenstockError], None],
    ) -> None:
        self._duck = duck
        self._lock = lock
        self._explain = explain
        self._damaged = damaged
        self._worker = Worker("penstock-compactor")

    def submit(self, layout: TableLayout, alive: Callable[[], bool]) -> None:
        """Submits an object; `alive` says whether it still exists."""
        self._worker.start()
        self._worker.leave(lambda: self._run(layout, alive))

    def settle(self) -> None:
        """Waits for everything submitted so far."""
        self._worker.run(lambda: None)

    def close(self, timeout: float) -> bool:
        return self._worker.close(timeout)

    def _run(self, layout: TableLayout, alive: Callable[[], bool]) -> None:
        try:
            self._compact(layout, alive)
        except PenstockError as why:
            self._failed(layout, alive, why)
        except BaseException as why:
            self._failed(layout, alive, fail("PSK-8001", f"Compaction failed: {type(why).__name__}: {why}"))

    def _failed(self, layout: TableLayout, alive: Callable[[], bool], why: PenstockError) -> None:
        with self._lock:
            layout.compacting = False
            # An object that was dropped meanwhile is not damaged.
            if self._duck.closed or not alive():
                return
            if why.code != "PSK-7009":
                layout.damage = why
        if layout.damage is not None:
            _logger.error("object %d of the view store is damaged", layout.id, exc_info=why)
            self._damaged(layout, why)
        else:
            _logger.warning("object %d of the view store was not compacted: %s", layout.id, why.detail)

    def _compact(self, layout: TableLayout, alive: Callable[[], bool]) -> None:
        with self._lock:
            if not alive():
                return
            base, deltas = layout.base, layout.deltas[:-1]
        fresh = layout.next_table()
        try:
            with self._duck.cursor(self._explain(layout.id)) as con:
                con.execute(f"CREATE TABLE {fresh} AS {layout.reading(base=base, deltas=deltas)}")
                counted = con.execute(f"SELECT count(*) FROM {fresh}").fetchone()
            with self._lock:
                if alive():
                    self._replace(layout, base, deltas, fresh, counted[0] if counted else 0)
        finally:
            if layout.base != fresh and not self._duck.closed:
                with self._duck.cursor() as con:
                    con.execute(f"DROP TABLE IF EXISTS {fresh}")

    def _replace(self, layout: TableLayout, base: str, deltas: list[str], fresh: str, rows: int) -> None:
        left = layout.deltas[len(deltas) :]
        with self._duck.transaction(self._explain(layout.id)) as con:
            con.execute(f"CREATE OR REPLACE VIEW {layout.view} AS {layout.reading(base=fresh, deltas=left)}")
            for table in (base, *deltas):
                con.execute(f"DROP TABLE {table}")
        layout.base, layout.deltas, layout.base_rows = fresh, left, rows
        layout.compacting = False
