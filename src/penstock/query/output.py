"""The output of a query and of the versions that it has had, as one sequence of changes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.catalog.objects import ObjectInfo
from penstock.errors import PenstockError
from penstock.serve.change import Change
from penstock.serve.subscription import Subscription
from penstock.serve.suspension import raisable


class Place(NamedTuple):
    """A point in a sequence of changes."""

    seq: int = 0
    epoch: int = 0
    lsn: int = 0


_START = Place()


class Difference:
    """The changes that turn the result of a version into that of the next one. They are computed after the switch, and readers wait for them."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._changes: deque[Change] = deque()
        self._error: BaseException | None = None
        self.end = Place()

    def become(self, changes: Sequence[Change]) -> None:
        self._changes.extend(changes)
        self.end = Place(len(changes), len(changes), max((c.lsn for c in changes), default=0))
        self._ready.set()

    def fail(self, error: BaseException) -> None:
        self._error = error
        self._ready.set()

    def fetch(self, count: int | None, timeout: float) -> list[Change]:
        if not self._ready.wait(timeout):
            return []
        if self._error is not None:
            raise raisable(self._error)
        with self._lock:
            most = len(self._changes) if count is None else min(count, len(self._changes))
            return [self._changes.popleft() for _ in range(most)]

    @property
    def closed(self) -> bool:
        return self._ready.is_set() and self._error is None and not self._changes

    def cancel(self) -> None:
        self._ready.set()


@dataclass
class _Part:
    """The output of one version, from `own` on in its own numbering and from `base` on in that of the whole. Without an object it is a difference."""

    changes: Subscription | Difference
    info: ObjectInfo | None = None
    own: Place = _START
    base: Place | None = None

    @property
    def end(self) -> Place:
        assert self.base is not None
        if isinstance(self.changes, Difference):
            at = self.changes.end
        else:
            figures = self.changes.figures
            at = Place(figures.messages, figures.epoch, figures.lsn)
        moved = Place(self.base.seq + at.seq - self.own.seq, self.base.epoch + at.epoch - self.own.epoch)
        return moved._replace(lsn=max(self.base.lsn, at.lsn))


class Output:
    """Any thread may read it. `drop` removes the object of a version, when all of its output has been read."""

    def __init__(self, drop: Callable[[ObjectInfo], None]) -> None:
        self._drop = drop
        self._parts: deque[_Part] = deque()
        self._lock = threading.Lock()

    def follow(self, info: ObjectInfo, changes: Subscription) -> None:
        """What comes next are the changes of this object that its subscription has not delivered so far."""
        figures = changes.figures
        own = Place(figures.messages, figures.epoch, figures.lsn)
        with self._lock:
            self._parts.append(_Part(changes, info, own, None if self._parts else own))

    def insert(self, difference: Difference) -> None:
        with self._lock:
            self._parts.append(_Part(difference))

    def fetch(self, count: int | None, timeout: float) -> list[Change]:
        """At most `count` changes, waiting at most `timeout` seconds for the first."""
        deadline = time.monotonic() + timeout
        out: list[Change] = []
        while count is None or len(out) < count:
            part = self._first()
            if part is None:
                break
            wait = 0.0 if out else max(0.0, deadline - time.monotonic())
            try:
                found = part.changes.fetch(None if count is None else count - len(out), wait)
            except PenstockError:
                if self._moot(part):
                    continue
                raise
            out += [_placed(c, part) for c in found]
            if not self._over(part):
                break
        return out

    def drained(self) -> list[Change]:
        """Everything that there is."""
        out: list[Change] = []
        while more := self.fetch(None, 0.0):
            out += more
        return out

    @property
    def replaced(self) -> int:
        """The number of versions that were replaced, and of whose output something may be left."""
        return sum(part.info is not None for part in self._parts) - 1

    def close(self) -> None:
        """Nothing more is read."""
        with self._lock:
            parts, self._parts = list(self._parts), deque()
        for part in parts:
            part.changes.cancel()
            if part.info is not None:
                self._drop(part.info)

    def _first(self) -> _Part | None:
        """What is to be read first: of the oldest version of which something may be left. None when it is closed."""
        with self._lock:
            return self._parts[0] if self._parts else None

    def _moot(self, part: _Part) -> bool:
        """Whether an error was that of a version that is replaced, and has not cost any of its output. It is raised once, and the output follows."""
        with self._lock:
            replaced = bool(self._parts) and self._parts[-1] is not part
        return replaced and isinstance(part.changes, Subscription) and part.changes.error is None

    def _over(self, part: _Part) -> bool:
        """Whether everything of an older version has been read; then it goes."""
        if not part.changes.closed:
            return False
        with self._lock:
            if not self._parts or self._parts[0] is not part:
                return bool(self._parts)  # Another reader has found out.
            if len(self._parts) == 1:
                return False
            self._parts[1].base = part.end
            self._parts.popleft()
        if part.info is not None:
            self._drop(part.info)
        return True


def _placed(change: Change, part: _Part) -> Change:
    """The change with the numbers of the whole sequence."""
    base, own = part.base, part.own
    assert base is not None
    if base is not own:
        # The next version may have recorded something before the old one has ended.
        change.prev_lsn = base.lsn if change.seq == own.seq + 1 else max(change.prev_lsn, base.lsn)
        change.lsn = max(change.lsn, base.lsn)
        change.seq += base.seq - own.seq
        change.epoch += base.epoch - own.epoch
    return change
