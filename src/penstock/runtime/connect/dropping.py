"""A buffer in front of a source that drops the oldest rows when it is full."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import pyarrow as pa

from penstock.runtime.storage.totals import Counts


class DroppingBuffer:
    """Takes batches at once, and passes them and their positions to `commit` in order, on a thread of its own. While `commit` waits, it keeps the newest `rows` rows."""

    def __init__(
        self, name: str, rows: int, commit: Callable[[pa.RecordBatch, str | None], None], counts: Counts
    ) -> None:
        self._counts = counts
        self.error: BaseException | None = None
        """Why `commit` failed; the next `push` raises it."""
        self._limit = rows
        self._commit = commit
        self._batches: deque[tuple[pa.RecordBatch, str | None]] = deque()
        self._rows = 0
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"penstock-intake-{name}", daemon=True)
        self._thread.start()

    def push(self, batch: pa.RecordBatch, position: str | None = None) -> None:
        with self._changed:
            if self.error is not None:
                raise self.error
            self._batches.append((batch, position))
            self._rows += batch.num_rows
            while self._rows > self._limit:
                excess = self._rows - self._limit
                oldest, after = self._batches.popleft()
                if oldest.num_rows > excess:
                    self._batches.appendleft((oldest.slice(excess), after))
                gone = min(excess, oldest.num_rows)
                self._rows -= gone
                self._counts.dropped += gone
            self._changed.notify_all()

    def stop(self) -> None:
        """Returns when everything that is buffered was passed on. `commit` must not wait any longer."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            try:
                self._commit(*batch)
            except BaseException as error:
                with self._changed:
                    self.error = error
                return

    def _next(self) -> tuple[pa.RecordBatch, str | None] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._batches or self._stopping)
            if not self._batches:
                return None
            batch, position = self._batches.popleft()
            self._rows -= batch.num_rows
            return batch, position
