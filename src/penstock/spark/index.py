"""The kernel's index of the log, told of commits by a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from queue import Empty, SimpleQueue

from penstock.log import Entry
from penstock.spark.session import jvm, releasing

_logger = logging.getLogger(__name__)

# What is told in one call: a log of millions of commits would be a string of hundreds of megabytes.
_LINES = 10_000

_News = tuple[Iterable[Entry], int] | threading.Event | None


class KernelIndex:
    """Tells the kernel where the rows of the log are.

    `add` does not wait: a commit is acknowledged when it is durable, not when the JVM knows of it, and commits that come while
    one call is under way go with the next one. All else takes effect after what was added before. Whoever waits for an LSN in
    the kernel waits until the index has reached it.
    """

    def __init__(self, database: str) -> None:
        self._database = database
        self._index = jvm().LogIndex.of(database)
        self._news: SimpleQueue[_News] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="penstock-index", daemon=True)
        self._thread.start()

    def add(self, entries: Iterable[Entry], head: int) -> None:
        """Entries in LSN order, and the LSN up to which readers may read now."""
        self._news.put((entries, head))

    def trimmed(self, object_id: int, watermark: int) -> None:
        """Says which watermark an object has none of whose entries is left."""
        self._index.trimmed(object_id, watermark)

    def trim(self, object_id: int, lsn: int) -> None:
        self._drain()
        self._index.trim(object_id, lsn)

    def forget(self, object_id: int) -> None:
        self._drain()
        self._index.forget(object_id)

    def close(self) -> None:
        self._news.put(None)
        self._thread.join()
        with releasing():
            jvm().LogIndex.drop(self._database)

    def _drain(self) -> None:
        """Returns when the kernel knows all that was added so far."""
        known = threading.Event()
        self._news.put(known)
        known.wait()

    def _run(self) -> None:
        running = True
        while running:
            running = self._hand_over(self._news.get())

    def _hand_over(self, first: _News) -> bool:
        """Tells the kernel everything that waits, in one call if it is not very much; False at the end."""
        lines: list[str] = []
        head = 0
        reached: list[threading.Event] = []
        item: _News = first
        try:
            while item is not None:
                if isinstance(item, threading.Event):
                    reached.append(item)
                else:
                    for entry in item[0]:
                        lines.append(_line(entry))
                        if len(lines) == _LINES:
                            # The head is told last: nobody reads half of what belongs together.
                            self._tell(lines, 0)
                            lines = []
                    head = max(head, item[1])
                item = self._news.get_nowait()
        except Empty:
            pass
        if head:
            self._tell(lines, head)
        for event in reached:
            event.set()
        return item is not None

    def _tell(self, lines: list[str], head: int) -> None:
        try:
            # Nothing can be told to a JVM that is gone; its jobs have failed, and say so.
            with releasing():
                self._index.add("".join(lines), head)
        except Exception:
            _logger.exception("the kernel was not told of the log up to commit %d", head)


def _line(e: Entry) -> str:
    wm = "" if e.watermark is None else str(e.watermark)
    if e.before:
        slices = ";".join([f"{o},{n},{r},{b}" for (o, n, r), b in zip(e.batches, e.before, strict=True)])
    else:
        slices = ";".join([f"{o},{n},{r}" for o, n, r in e.batches])
    return f"{e.lsn}\t{e.object_id}\t{wm}\t{int(e.idle)}\t{e.schema_version}\t{e.path}\t{slices}\n"
