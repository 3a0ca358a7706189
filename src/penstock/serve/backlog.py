"""The backlog of one reader: what was published and not read yet, in bounded memory."""

from __future__ import annotations

from collections import deque

from penstock.serve.message import Message, Point
from penstock.serve.options import Limits


class Backlog:
    """Everything between `at` (read) and `newest` (published). Callers hold the subscription's lock.

    Normally the queue holds all of it. Otherwise part of it has to come from elsewhere:

    - `behind`: the queue overflowed; it accepts nothing more, and everything after it is missing;
    - `gap`: every epoch up to `gap` is missing in front of the queue; the reader fetches them from the log while the queue accepts what follows;
    - `lost`: the missing epochs are gone or the policy does not fetch them (the text says why), so the reader needs a snapshot.
    """

    def __init__(self, limits: Limits, newest: Point) -> None:
        self.newest = newest
        self.at = newest.epoch
        self.gap: int | None = None
        self.behind = False
        self.lost: str | None = None
        self.dropped = 0
        """Epochs that are never delivered because a snapshot or a newer message replaced them."""
        self.skipped = False
        """The policy `latest` dropped messages in front of the queue."""
        self._limits = limits
        self._queue: deque[Message] = deque()
        self._bytes = 0
        # While a starting point is read, messages after `_base` are queued; an overflow is not the reader's fault.
        self._starting = True
        self._base = newest.epoch

    @property
    def pending(self) -> tuple[int, int]:
        """Messages and bytes in memory."""
        return len(self._queue), self._bytes

    def upcoming(self) -> int | None:
        """The next epoch to read; None if the reader is up to date."""
        if self.behind and self.gap is None and not self._queue:
            # Accept messages again from here on, so that the reader can catch up with the publisher.
            self.gap, self.behind = self.newest.epoch, False
        if self.gap is not None:
            return self.at + 1
        return self._queue[0].epoch if self._queue else None

    @property
    def first(self) -> Message | None:
        """The next message, if it is in memory."""
        return self._queue[0] if self._queue and self.gap is None else None

    # The publisher's side

    def offer(self, point: Point, message: Message | None) -> bool:
        """Queues one epoch (no message: it has no rows) or records that it is missing. False if the policy disconnects the reader."""
        known = self.newest
        if point.epoch <= known.epoch:
            if message is None and point.lsn > known.lsn:
                self.newest = point._replace(epoch=known.epoch)
            return True
        self.newest = point
        if self.behind or (self.lost is not None and not self._starting):
            return True
        missed = point.epoch > known.epoch + 1
        if self._limits.policy == "latest" and message is not None:
            self.skipped = self.skipped or missed or bool(self._queue)
            self.dropped += len(self._queue)
            self._clear()
        elif missed:
            # The publisher skipped an epoch, or another thread overtook it. The log has it.
            self._fall_behind()
            return True
        if message is None or self._fits(message):
            return True
        return self._overflow()

    def _fits(self, message: Message) -> bool:
        full = len(self._queue) >= self._limits.messages or self._bytes + message.size > self._limits.bytes
        if full and self._queue:
            return False
        self._queue.append(message)
        self._bytes += message.size
        return True

    def _overflow(self) -> bool:
        if self._starting or self.gap is not None or self._limits.policy in ("block", "coalesce"):
            self._fall_behind()
        elif self._limits.policy == "disconnect":
            return False
        else:
            self.lose("the subscriber was too slow")
        return True

    def _fall_behind(self) -> None:
        self.behind = True
        if self._starting or self.gap is not None or self._limits.policy != "block":
            # The reader fetches these from the log as well.
            self._clear()

    # The reader's side

    def passed(self, epoch: int) -> None:
        """Marks everything up to `epoch` as read."""
        self.at = max(self.at, epoch)
        while self._queue and self._queue[0].epoch <= epoch:
            self._bytes -= self._queue.popleft().size
        if self.gap is not None and self.at >= self.gap:
            self.gap = None
        if self.newest.epoch <= self.at:
            self.behind = False
        if self.newest.epoch < self.at:
            self.newest = self.newest._replace(epoch=self.at)

    def lose(self, reason: str) -> None:
        """Gives up on the missing epochs; the reader needs a snapshot."""
        self.lost = reason
        self.gap, self.behind, self._starting = None, False, False
        self._clear()

    def restart(self) -> Point:
        """Starts queueing before a new starting point is read; returns the point that it must reach at least."""
        self.gap, self.behind, self._starting = None, False, True
        self._clear()
        self._base = self.newest.epoch
        return self.newest

    def started(self, epoch: int) -> None:
        """Sets the position to `epoch`. Whatever was published between it and the restart has to come from the log."""
        if self.lost is not None:
            self.dropped += max(0, epoch - self.at)
        self.lost, self._starting, self.at = None, False, epoch
        if self._base > epoch:
            self.gap = self._base
        self.passed(epoch)

    def clear(self) -> None:
        """Frees the memory; nothing will be read any more."""
        self._clear()
        self.gap, self.behind, self.lost = None, False, None

    def _clear(self) -> None:
        self._queue.clear()
        self._bytes = 0
