"""A replicated lookup table: all of it is kept, and made equal to its source at intervals and by REFRESH."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa

from penstock.catalog.objects import ObjectInfo
from penstock.connect import Access
from penstock.errors import PenstockError, fail
from penstock.runtime.connect.lookups import FedLookup, difference
from penstock.runtime.lifecycle import LookupState
from penstock.runtime.storage.record import change_part
from penstock.runtime.storage.storage import Storage

_BATCH_ROWS = 65_536


class Replica(FedLookup):
    """A refresh reads the source, and what differs becomes one commit. One that fails changes nothing and is tried again."""

    def __init__(self, storage: Storage, info: ObjectInfo, access: Callable[[], Access]) -> None:
        super().__init__(storage, info, access)
        self._refreshing = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def refresh(self) -> int:
        """Makes the contents those of the source; how many rows came and went."""
        with self._refreshing:
            rows = self.read_all()
            return self.become(rows)

    def become(self, rows: pa.Table) -> int:
        """Makes these rows the contents, in one commit; none if they are so already."""
        delta = difference(self._storage.store.snapshot(self.info.id)[0], rows)
        self.figures.entries = rows.num_rows
        self.figures.bytes = rows.nbytes
        if delta.num_rows:
            self._storage.commit([change_part(self.info, delta, _BATCH_ROWS)])
        return int(delta.num_rows)

    def start(self) -> None:
        """Refreshes at once, because nobody knows what happened meanwhile, and then at the interval."""
        if self.options.refresh_ms is None or self._thread is not None:
            return
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name=f"penstock-refresh-{self.info.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        assert self.options.refresh_ms is not None
        interval = self.options.refresh_ms / 1000
        wait = interval if self.figures.requests else 0.0
        while not self._stop.wait(wait):
            wait = interval
            shown = self.state, self.error
            try:
                self.refresh()
            except PenstockError:
                if self._stop.is_set():
                    self._say(*shown)
                    return
                wait = min(interval, self._wait_s())
            except Exception as error:
                if self._stop.is_set():
                    return
                text = str(fail("PSK-8001", f"{self.info.name}: {type(error).__name__}: {error}"))
                self._say(LookupState.RETRYING, text)

    def stop(self) -> None:
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            if self._source is not None:
                self._source.cancel()
            thread.join(timeout=10)
