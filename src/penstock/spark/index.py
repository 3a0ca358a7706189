"""The kernel's index of the log, updated by its own thread."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from queue import Empty, SimpleQueue

from penstock.log import Entry
from penstock.spark.session import jvm, releasing

_logger = logging.getLogger(__name__)

# The maximum per call: a log of millions of commits would be a string of hundreds of megabytes.
_LINES = 10_000

_AGAIN_S = 1.0
"""The time before a failed call is retried."""

_News = tuple[Iterable[Entry], int] | threading.Event | None


class KernelIndex:
    """Sends the locations of rows in the log to the kernel.

    `add` does not wait: a commit is acknowledged when it is durable, not when the JVM knows of it. Commits that arrive during
    a call are sent with the next one. All other calls take effect after earlier additions. A caller that waits for an LSN in
    the kernel waits until the index has reached it.
    """

    def __init__(self, database: str) -> None:
        self._database = database
        self._index = jvm().LogIndex.of(database)
        self._news: SimpleQueue[_News] = SimpleQueue()
        self._unsent: deque[tuple[str, int]] = deque()
        self._thread = threading.Thread(target=self._run, name="penstock-index", daemon=True)
        self._thread.start()

    def add(self, entries: Iterable[Entry], head: int) -> None:
        """Adds entries in LSN order; `head` is the LSN up to which readers may read now."""
        self._news.put((entries, head))

    def trimmed(self, object_id: int, watermark: int) -> None:
        """Sets the watermark of an object without remaining entries."""
        self._index.trimmed(object_id, watermark)

    def trim(self, object_id: int, lsn: int) -> None:
        self._drain()
        with releasing():
            self._index.trim(object_id, lsn)

    def forget(self, object_id: int) -> None:
        self._drain()
        with releasing():
            self._index.forget(object_id)

    def close(self) -> None:
        self._news.put(None)
        self._thread.join()
        with releasing():
            jvm().LogIndex.drop(self._database)

    def _drain(self) -> None:
        """Waits until the kernel has all entries added so far."""
        known = threading.Event()
        self._news.put(known)
        known.wait()

    def _run(self) -> None:
        running = True
        while running:
            try:
                news = self._news.get(timeout=_AGAIN_S if self._unsent else None)
            except Empty:
                self._send()
            else:
                running = self._hand_over(news)

    def _hand_over(self, first: _News) -> bool:
        """Sends everything in the queue to the kernel, in one call unless it is too much; False at the end."""
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
                            # Send the head last, so that no job reads half a commit.
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
        self._unsent.append(("".join(lines), head))
        self._send()

    def _send(self) -> None:
        """Makes the pending calls. A failed call is retried before any later one, or a job would miss its rows.

        The kernel skips known entries, so a call whose reply was lost can be repeated.
        """
        try:
            while self._unsent:
                # If the JVM has exited, skip this: its jobs have failed and report it.
                with releasing():
                    self._index.add(*self._unsent[0])
                self._unsent.popleft()
        except Exception:
            _logger.exception("the kernel did not receive commits of the log; they are sent again")


def packed_slices(batches: Iterable[tuple[int, int, int]], checks: Sequence[int], before: Sequence[int] = ()) -> str:
    """Messages in the kernel's text form: offset, length, rows and, if known, checksum and the watermark in force."""
    if before:
        known: Sequence[int | str] = checks or [""] * len(before)
        return ";".join([f"{o},{n},{r},{c},{b}" for (o, n, r), c, b in zip(batches, known, before, strict=True)])
    if checks:
        return ";".join([f"{o},{n},{r},{c}" for (o, n, r), c in zip(batches, checks, strict=True)])
    return ";".join([f"{o},{n},{r}" for o, n, r in batches])


def _line(e: Entry) -> str:
    wm = "" if e.watermark is None else str(e.watermark)
    slices = packed_slices(e.batches, e.checks, e.before)
    return f"{e.lsn}\t{e.object_id}\t{wm}\t{int(e.idle)}\t{e.column_count}\t{e.path}\t{slices}\n"
