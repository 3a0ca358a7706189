"""The output of all versions of a query, as one sequence of changes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.catalog.objects import ObjectInfo
from penstock.errors import PenstockError
from penstock.serve.change import Change
from penstock.serve.subscription import Subscription
from penstock.serve.suspension import raisable

# A signal between two checks may be missed, so every wait is bounded.
_LOOK_S = 0.5


class Difference:
    """The changes from the result of one version to that of the next. They are computed after the switch, and readers wait for them."""

    def __init__(self) -> None:
        self._ready = False
        self._changes: deque[Change] = deque()
        self._error: BaseException | None = None
        self.wake: Callable[[], None] = lambda: None

    def become(self, changes: Sequence[Change]) -> None:
        self._changes.extend(changes)
        self._ready = True
        self.wake()

    def fail(self, error: BaseException) -> None:
        self._error = error
        self.wake()

    def next(self, timeout: float) -> Change | None:
        """The next change, if they are computed; it does not wait."""
        if self._error is not None:
            raise raisable(self._error)
        return self._changes.popleft() if self._ready and self._changes else None

    @property
    def closed(self) -> bool:
        return self._ready and not self._changes


@dataclass
class _Part:
    """The output of one version, or the difference between two."""

    changes: Subscription | Difference
    info: ObjectInfo | None = None


class Output:
    """Any thread may read it; readers take turns. `drop` removes the object of a version once all of its output has been read."""

    def __init__(self, drop: Callable[[ObjectInfo], None], most: int) -> None:
        self._drop = drop
        self._most = most
        """The approximate maximum size of one call's result, in bytes."""
        self._parts: deque[_Part] = deque()
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._news = threading.Condition()
        self._count = 0
        self._last: Change | None = None
        self._swapped = False
        """Whether the changes of the first version have been read."""
        self._error: PenstockError | None = None
        """Raised by the next call, after the changes before it."""

    def follow(self, info: ObjectInfo, changes: Subscription) -> None:
        """Appends the changes of this object that its subscription has not delivered yet."""
        changes.wake = self._wake
        with self._lock:
            self._parts.append(_Part(changes, info))
        self._wake()

    def insert(self, difference: Difference) -> None:
        difference.wake = self._wake
        with self._lock:
            self._parts.append(_Part(difference))

    def fetch(self, count: int | None, timeout: float) -> list[Change]:
        """At most `count` changes, waiting at most `timeout` seconds for the first."""
        deadline = time.monotonic() + timeout
        while True:
            with self._news:
                seen = self._count
            if not self._turn.acquire(timeout=max(0.0, deadline - time.monotonic()) or 0.001):
                return []
            try:
                out = self._available(count)
            finally:
                self._turn.release()
            left = deadline - time.monotonic()
            if out or left <= 0 or not self._parts:
                return out
            with self._news:
                self._news.wait_for(lambda seen=seen: self._count != seen, min(left, _LOOK_S))  # type: ignore[misc]

    def drained(self) -> list[Change]:
        """All available changes."""
        out: list[Change] = []
        while more := self.fetch(None, 0.0):
            out += more
        return out

    @property
    def replaced(self) -> int:
        """The number of replaced versions that may have unread output."""
        return sum(part.info is not None for part in list(self._parts)) - 1

    def close(self) -> None:
        """Discards the rest of the output."""
        with self._lock:
            parts, self._parts = list(self._parts), deque()
        for part in parts:
            if isinstance(part.changes, Subscription):
                part.changes.cancel()
            if part.info is not None:
                self._drop(part.info)
        self._wake()

    def _wake(self) -> None:
        with self._news:
            self._count += 1
            self._news.notify_all()

    def _available(self, count: int | None) -> list[Change]:
        error, self._error = self._error, None
        if error is not None:
            raise error
        out: list[Change] = []
        room = self._most
        while (count is None or len(out) < count) and room > 0:
            part = self._first()
            if part is None:
                break
            try:
                change = part.changes.next(0)
            except PenstockError as problem:
                if self._moot(part):
                    continue
                if not out:
                    raise
                self._error = problem
                break
            if change is not None:
                out.append(self._placed(change))
                room -= change.table.nbytes
            elif not self._ended(part):
                break
        return out

    def _first(self) -> _Part | None:
        """The part to read next, that of the oldest version with unread output. None after `close`."""
        with self._lock:
            return self._parts[0] if self._parts else None

    def _moot(self, part: _Part) -> bool:
        """Whether to ignore an error: it is of a replaced version and loses none of its output."""
        with self._lock:
            replaced = bool(self._parts) and self._parts[-1] is not part
        return replaced and isinstance(part.changes, Subscription) and part.changes.error is None

    def _ended(self, part: _Part) -> bool:
        """Whether an older version has been read completely; if so, drops it."""
        with self._lock:
            if len(self._parts) < 2 or self._parts[0] is not part or not part.changes.closed:
                return False
            self._parts.popleft()
            self._swapped = True
        if part.info is not None:
            self._drop(part.info)
        return True

    def _placed(self, change: Change) -> Change:
        """The change, renumbered for the whole sequence."""
        last, self._last = self._last, change
        if self._swapped and last is None:
            change.seq = change.epoch = 1
        elif self._swapped and last is not None:
            change.name, change.seq, change.epoch = last.name, last.seq + 1, last.epoch + 1
            # The next version may have recorded something before the old one has ended.
            change.prev_lsn, change.lsn = last.lsn, max(change.lsn, last.lsn)
        return change
