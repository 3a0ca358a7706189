"""The messages of one object in memory, shared by all of its readers."""

from __future__ import annotations

import math
import threading

from penstock.serve.message import Message, Point


class Link:
    """A position between two messages. `next` is None at the end; otherwise `message` is between the two links or, if None, the epochs up
    to `until` are missing there.

    `count` and `bytes` cover all messages before the link; `size` is that of the last one. A message is freed once every reader has passed it.
    """

    __slots__ = ("bytes", "count", "message", "next", "size", "until")

    def __init__(self, before: Link | None = None, message: Message | None = None) -> None:
        self.size: int = 0 if message is None else message.size
        self.count: int = 0 if before is None else before.count + (message is not None)
        self.bytes: int = self.size if before is None else before.bytes + self.size
        self.message: Message | None = None
        self.until = 0
        self.next: Link | None = None

    def extended(self, message: Message | None, until: int = 0) -> Link:
        """The link after a message, or after missing epochs. Readers see it once it is assigned to `next`."""
        self.message, self.until = message, until
        return Link(self, message)


class Chain:
    """Publishing appends one link, for any number of readers. Each reader keeps its own position.

    `newest` is set before `tail`. Without a lock, read `tail` first: every epoch after `newest` then follows it.

    A stalled reader would keep the chain alive. `due` is true when a reader may have reached its limits; then call `Backlog.trim` for
    each. `waiting` are the readers to wake.
    """

    def __init__(self, newest: Point) -> None:
        self.newest = newest
        self.tail = Link()
        self.waiting: dict[int, None] = {}
        self._due_count = self._due_bytes = math.inf
        self._lock = threading.Lock()

    def append(self, point: Point, message: Message | None) -> None:
        """Appends one epoch; without a message, it has no rows. Called by one thread at a time."""
        missed = point.epoch > self.newest.epoch + 1
        self.newest = point
        if missed:
            # The publisher skipped an epoch, or another thread overtook it. The log has it.
            self._append(None, point.epoch - (message is not None))
        if message is not None:
            self._append(message)

    def _append(self, message: Message | None, until: int = 0) -> None:
        last = self.tail
        self.tail = tail = last.extended(message, until)
        last.next = tail

    def expect(self, count: float, size: float) -> None:
        """Announces the totals of messages and bytes in the chain beyond which a reader has reached its limits."""
        with self._lock:
            self._due_count = min(self._due_count, count)
            self._due_bytes = min(self._due_bytes, size)

    def due(self) -> bool:
        """Whether a reader may have reached its limits. If so, all of them must announce their limits again."""
        tail = self.tail
        if tail.count <= self._due_count and tail.bytes <= self._due_bytes:
            return False
        with self._lock:
            self._due_count = self._due_bytes = math.inf
        return True
