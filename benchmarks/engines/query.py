"""What the throughput works need of a competitor: a running query that takes batches and gives results."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import pyarrow as pa

# An engine that has given nothing for so long has lost rows, or will not end within the run.
SILENCE_S = 120.0


class Query(ABC):
    """A query that has been started and waits for its first row."""

    def prepare(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch as this engine wants it; not part of the measured time."""
        return batch

    @abstractmethod
    def push(self, batch: pa.RecordBatch) -> None: ...

    @abstractmethod
    def poll(self, timeout: float) -> pa.Table | None:
        """The next results, or None after `timeout` seconds."""

    @abstractmethod
    def close(self) -> None: ...


class Pusher(threading.Thread):
    """Pushes batches as fast as they are taken. `join` and read `error`."""

    def __init__(self, query: Query, batches: Sequence[pa.RecordBatch]) -> None:
        super().__init__(daemon=True)
        self._query = query
        self._batches = batches
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for batch in self._batches:
                self._query.push(batch)
        except BaseException as error:
            self.error = error


def stream(query: Query, batches: Sequence[pa.RecordBatch], complete: Callable[[pa.Table], bool]) -> float:
    """Seconds from the first push until `complete` says that the results it was given are all."""
    prepared = [query.prepare(b) for b in batches]
    pusher = Pusher(query, prepared)
    began = time.perf_counter()
    pusher.start()
    while True:
        table = query.poll(SILENCE_S)
        if pusher.error is not None:
            raise pusher.error
        if table is None:
            raise TimeoutError(f"no result for {SILENCE_S:.0f} s")
        if complete(table):
            break
    seconds = time.perf_counter() - began
    pusher.join()
    return seconds
