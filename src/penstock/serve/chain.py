"""The messages of one object in memory, shared by all of its readers."""

from __future__ import annotations

import math
import threading

from penstock.serve.message import Message, Point


class Link:
    """A place between two messages. `next` is None at the end; otherwise `message` comes between the two links, or, if it is None, the epochs up
    to `until` are missing there.

    `count` and `bytes` are those of all messages before the link, `size` is that of the last. A message is freed when no reader is in front of it any more.
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
        """The link after a message, or after missing epochs. Readers see it when it is assigned to `next`."""
        self.message, self.until = message, until
        return Link(self, message)


class Chain:
    """Publishing costs the same for any number of readers: one link. Each reader keeps its own place.

    `newest` is set before `tail`. Whoever reads them without a lock reads `tail` first, and then finds every epoch after `newest` behind it.

    A reader that does not read would keep the chain alive. `due` tells when some reader may have reached its limits, and is then to be
    asked (`Backlog.trim`). `waiting` are the readers to wake.
    """

    def __init__(self, newest: Point) -> None:
        self.newest = newest
        self.tail = Link()
        self.waiting: dict[int, None] = {}
        self._due_count = self._due_bytes = math.inf
        self._lock = threading.Lock()

    def append(self, point: Point, message: Message | None) -> None:
        """One epoch; no message: it has no rows. Called by one thread at a time."""
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
        """A reader reaches its limits when more messages, or bytes, than these have been appended in all."""
        with self._lock:
            self._due_count = min(self._due_count, count)
            self._due_bytes = min(self._due_bytes, size)

    def due(self) -> bool:
        """Whether readers have to be asked. If so, each of them has to announce its limits again."""
        tail = self.tail
        if tail.count <= self._due_count and tail.bytes <= self._due_bytes:
            return False
        with self._lock:
            self._due_count = self._due_bytes = math.inf
        return True
