"""The backlog of one reader: published messages that it has not read yet, in bounded memory."""

from __future__ import annotations

from penstock.serve.chain import Chain, Link
from penstock.serve.message import Message, Point
from penstock.serve.options import Limits


class Backlog:
    """Everything between `at` (read) and `newest` (published). Callers hold the subscription's lock.

    Normally all of it is in the chain, after `link`. Otherwise part of it must come from elsewhere:

    - `behind`: the reader reached its limits and left the chain; everything after `link`'s own messages is missing;
    - `gap`: every epoch up to `gap` is missing before `link`; the reader fetches them from the log while the chain grows;
    - `lost`: the missing epochs are gone or the policy does not fetch them (the text says why), so the reader needs a snapshot.
    """

    def __init__(self, limits: Limits, chain: Chain) -> None:
        self.chain = chain
        self.gap: int | None = None
        self.behind = False
        self.lost: str | None = None
        self.skipped = False
        """The policy `latest` dropped messages before the next one."""
        self._limits = limits
        self._latest = limits.policy == "latest"
        self._dropped = 0
        self.link: Link | None = None
        # The end of the reader's own links, once it has left the chain.
        self._tail: Link | None = None
        self._attach()
        self.at = chain.newest.epoch
        # While the starting point is being read, messages after `_base` are queued; an overflow is not the reader's fault.
        self._starting = True
        self._base = self.at

    @property
    def newest(self) -> Point:
        """The newest point that was published or was the point of contents."""
        newest = self.chain.newest
        return newest if newest.epoch >= self.at else newest._replace(epoch=self.at)

    @property
    def pending(self) -> tuple[int, int]:
        """Messages and bytes in memory."""
        if self.link is None:
            return 0, 0
        tail = self._tail or self.chain.tail
        count = tail.count - self.link.count
        return (1, tail.size) if self._latest and count > 1 else (count, tail.bytes - self.link.bytes)

    @property
    def dropped(self) -> int:
        """Number of epochs that are never delivered because a snapshot or a newer message replaced them."""
        if not self._latest or self.link is None:
            return self._dropped
        return self._dropped + max(0, self.chain.tail.count - self.link.count - 1)

    @property
    def steady(self) -> bool:
        """Whether all remaining messages are in the chain."""
        return self.gap is None and not self.behind and self.lost is None and self.link is not None

    def upcoming(self) -> int | None:
        """The next epoch to read; None if the reader is up to date."""
        if self.gap is None:
            self._settle()
        if self.gap is not None:
            return self.at + 1
        first = self.first
        return None if first is None else first.epoch

    @property
    def first(self) -> Message | None:
        """The next message, if it is in memory. Call `upcoming` first."""
        link = self.link
        return link.message if link is not None and link.next is not None and self.gap is None else None

    def _settle(self) -> None:
        """Moves to the next message to deliver, or to a gap."""
        while (link := self.link) is not None and (after := link.next) is not None:
            message = link.message
            if message is None:
                if link.until > self.at and not (self._latest and after.next is not None):
                    self.link, self.gap = after, link.until
                    return
                self.skipped = self.skipped or (self._latest and link.until > self.at)
            elif message.epoch > self.at:
                if not self._latest or after.next is None:
                    return
                self._dropped += 1
                self.skipped = True
            self.link = after
        if self.behind:
            # Rejoin the chain at its end, so that the reader can catch up with the publisher.
            self._attach()
            self.gap, self.behind = self.chain.newest.epoch, False

    def _attach(self) -> None:
        chain = self.chain
        self.link, self._tail = chain.tail, None
        self._announce()

    # The publisher's side

    def trim(self) -> bool:
        """Leaves the chain if the limits are reached; False if the policy disconnects the reader."""
        link, tail, limits = self.link, self.chain.tail, self._limits
        if link is None or self._tail is not None:
            return True
        count, size = tail.count - link.count, tail.bytes - link.bytes
        # One message of any size always fits.
        if count <= 1 or (count <= limits.messages and size <= limits.bytes):
            self._announce()
            return True
        if self._latest:
            self._keep_newest(link)
        elif self._starting or self.gap is not None or limits.policy in ("block", "coalesce"):
            self._fall_behind(link)
        elif limits.policy == "disconnect":
            return False
        else:
            self.lose("the subscriber was too slow")
        return True

    def _announce(self) -> None:
        if self.link is not None:
            self.chain.expect(self.link.count + self._limits.messages, self.link.bytes + self._limits.bytes)

    def _keep_newest(self, link: Link) -> None:
        while link.next is not None and link.next.next is not None:
            if link.message is not None and link.message.epoch > self.at:
                self._dropped += 1
            self.skipped = True
            link = link.next
        self.link = link
        self._announce()

    def _fall_behind(self, link: Link) -> None:
        self.behind = True
        if self._starting or self.gap is not None or self._limits.policy != "block":
            # The reader fetches these from the log too.
            self.link = None
            return
        self.link = own = Link()
        at: Link | None = link
        while at is not None and at.next is not None:
            message = at.message
            if message is None:
                break
            more = own.extended(message)
            if own.count and (more.count > self._limits.messages or more.bytes > self._limits.bytes):
                own.message = None
                break
            own.next = more
            own, at = more, at.next
        self._tail = own

    # The reader's side

    def passed(self, epoch: int) -> None:
        """Marks everything up to `epoch` as read."""
        self.at = max(self.at, epoch)
        while (link := self.link) is not None and link.next is not None and link.message is not None:
            if link.message.epoch > epoch:
                break
            self.link = link.next
        if self.gap is not None and self.at >= self.gap:
            self.gap = None
        if self.behind:
            tail = self.chain.tail
            if self.chain.newest.epoch <= self.at:
                self.link, self._tail, self.behind = tail, None, False
                self._announce()

    def lose(self, reason: str) -> None:
        """Gives up on the missing epochs; the reader needs a snapshot."""
        self.lost = reason
        self.gap, self.behind, self._starting, self.link = None, False, False, None

    def restart(self) -> Point:
        """Starts queueing before a new starting point is read; returns the earliest valid starting point."""
        self.gap, self.behind, self._starting = None, False, True
        self._attach()
        newest = self.newest
        self._base = newest.epoch
        return newest

    def started(self, epoch: int) -> None:
        """Sets the position to `epoch`. Epochs published between it and the restart must come from the log."""
        if self.lost is not None:
            self._dropped += max(0, epoch - self.at)
        self.lost, self._starting, self.at = None, False, epoch
        if self._base > epoch:
            self.gap = self._base
        self.passed(epoch)

    def clear(self) -> None:
        """Frees the memory. Nothing is read after this."""
        self.link = None
        self.gap, self.behind, self.lost = None, False, None
