"""A subscription to several objects at once, delivered at the same LSN.

Every change of a member ends at an input LSN, its *boundary*: the change includes all writes up to it. Members that share a job have the same
boundaries; others need not. A message of the group ends at an LSN that is a boundary of each member, or is after a member's last boundary if that
member is known to have no more changes up to it. So no message shows a commit in one member and not in another. Objects of different jobs under a
writer that never pauses have few common boundaries; the group then delivers less often, and sums the pending changes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from penstock.serve.change import Change
from penstock.serve.changes import Changes
from penstock.serve.layout import WEIGHT
from penstock.serve.subscription import Subscription
from penstock.serve.zset import consolidate

# A signal between two checks may be missed, so every wait is bounded.
_LOOK_S = 0.5


@dataclass(frozen=True)
class GroupChange:
    """The changes of each member in `(prev_lsn, lsn]`; both are the same if only a view was altered. The LSNs are those of writes to sources and tables. `tables` are by member, in the form
    of its own changes. `snapshot`, `resync`: the contents of all members, which replace everything before."""

    kind: Literal["changes", "snapshot", "resync"]
    lsn: int
    prev_lsn: int
    seq: int
    tables: Mapping[str, pa.Table]
    reason: str | None = None

    def rows(self) -> list[dict[str, Any]]:
        """The rows of all members, each as `object`, `row` and, if it has one, `__weight`."""
        out = []
        for name, table in self.tables.items():
            for row in Change(name, 0, self.lsn, self.lsn, self.prev_lsn, self.seq, table, self.kind).rows():
                weight = {WEIGHT: row.pop(WEIGHT)} if WEIGHT in row else {}
                out.append({"object": name, "row": row, **weight})
        return out


@dataclass(frozen=True)
class GroupMember:
    """`open` subscribes to the object, with or without its contents, from now or after an LSN of the group. `settled` waits until everything
    up to an LSN has been published to its subscribers; False at the deadline."""

    name: str
    open: Callable[[bool, int | None], Subscription]
    settled: Callable[[int, float], bool]


@dataclass
class _Follower:
    member: GroupMember
    subscription: Subscription
    begun: int
    """The input LSN at which it starts."""
    pending: list[Change] = field(default_factory=list)
    lost: str | None = None
    """Why messages are missing."""

    def drain(self) -> None:
        """Takes the published changes."""
        while self.lost is None and (change := self.subscription.next(0)) is not None:
            if change.kind == "resync":
                self.lost = change.reason or "messages were lost"
                return
            if change.kind == "snapshot":
                self.begun = change.input_lsn
            self.pending.append(change)

    def parted(self, lsn: int, since: int) -> tuple[list[Change], list[Change]] | None:
        """The changes up to an LSN and those after it; None if one spans it. `since`: the LSN after which the pending ones start."""
        before = [c for c in self.pending if c.input_lsn <= lsn]
        after = self.pending[len(before) :]
        last = before[-1].input_lsn if before else max(since, self.begun)
        return None if after and last < lsn else (before, after)


class GroupSubscription(Changes[GroupChange]):
    """An iterator of changes of several objects. One thread reads it at a time; any thread may cancel it.

    `after`: continue after the LSN of the last message that was seen. `up_to`: end once everything up to an LSN has been delivered.
    """

    def __init__(
        self, members: Sequence[GroupMember], *, snapshot: bool, after: int | None = None, up_to: int | None = None
    ) -> None:
        self._members = tuple(members)
        self._news = threading.Event()
        self._lock = threading.Lock()
        self._closed = False
        self._lsn: int | None = None
        self._seq = 0
        self._snapshot = snapshot
        self._up_to = up_to
        self._reason: str | None = None
        self._followers: list[_Follower] = []
        self._open(after)

    def _open(self, after: int | None = None) -> None:
        contents = self._snapshot or self._reason is not None
        opened: list[_Follower] = []
        try:
            for member in self._members:
                subscription = member.open(contents, after)
                begun = subscription.figures.input_lsn if after is None else after
                opened.append(_Follower(member, subscription, begun))
                subscription.wake = self._news.set
        except BaseException:
            for f in opened:
                f.subscription.cancel()
            raise
        self._followers, self._lsn = opened, None if contents else after
        self._news.set()

    @property
    def closed(self) -> bool:
        return self._closed

    def next(self, timeout: float | None = None) -> GroupChange | None:
        """The next change; None after `timeout` seconds, and at the end (`closed` is then true). Raises errors of the members."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._closed:
            self._news.clear()
            change = self._look(deadline)
            if change is not None:
                return change
            if any(f.subscription.closed for f in self._followers) or self._ended(deadline):
                self.cancel()
                return None
            left = _LOOK_S if deadline is None else min(_LOOK_S, deadline - time.monotonic())
            if left <= 0:
                return None
            self._news.wait(left)
        return None

    def cancel(self) -> None:
        """Ends the subscription now."""
        with self._lock:
            self._closed = True
        for f in self._followers:
            f.subscription.cancel()
        self._news.set()

    def _look(self, deadline: float | None) -> GroupChange | None:
        if not self._drained():
            return None
        first = max(f.begun for f in self._followers)
        wanted = {c.input_lsn for f in self._followers for c in f.pending if c.input_lsn >= first}
        if self._lsn is None:
            wanted.add(first)
        if self._up_to is not None:
            wanted = {lsn for lsn in wanted if lsn <= self._up_to}
        done, followers = self._lsn, self._followers
        # An altered view is recomputed from commits that the group has passed.
        again = done is not None and any(c.input_lsn <= done for f in followers for c in f.pending)
        if done is not None and again:
            wanted.add(done)
        for lsn in sorted(wanted, reverse=True):
            if done is not None and lsn <= done and not (again and lsn == done):
                break
            found = self._at(lsn, deadline)
            if found is not None or self._followers is not followers:
                return found
        return None

    def _ended(self, deadline: float | None) -> bool:
        """Whether every member has published everything up to the last requested LSN, and all of it has been considered."""
        if self._up_to is None:
            return False
        last = self._up_to
        wait = time.monotonic() + _LOOK_S if deadline is None else deadline
        if not all(f.member.settled(last, wait) for f in self._followers):
            return False
        held = [len(f.pending) for f in self._followers]
        # Consider first what was published since the last check.
        for f in self._followers:
            f.drain()
        return held == [len(f.pending) for f in self._followers] and not any(f.lost for f in self._followers)

    def _at(self, lsn: int, deadline: float | None) -> GroupChange | None:
        """The change that ends at an LSN; None if that is no boundary of some member, or nothing changed."""
        wait = time.monotonic() + _LOOK_S if deadline is None else deadline
        if not all(f.member.settled(lsn, wait) for f in self._followers):
            return None
        if not self._drained():
            return None
        begins = self._lsn is None
        parts = [f.parted(lsn, 0 if self._lsn is None else self._lsn) for f in self._followers]
        if any(p is None for p in parts):
            return None
        tables: dict[str, pa.Table] = {}
        for f, part in zip(self._followers, parts, strict=True):
            assert part is not None
            f.pending = part[1]
            tables[f.member.name] = _sum(part[0], f.subscription.schema)
        prev, self._lsn = (lsn if begins else self._lsn or 0), lsn
        contents = self._snapshot or self._reason is not None
        if begins and not contents:
            return None  # Changes before the first common LSN are not part of the timeline.
        if not begins and not any(t.num_rows for t in tables.values()):
            return None
        self._seq += 1
        kind: Literal["changes", "snapshot", "resync"] = "changes"
        reason = None
        if begins:
            kind, reason, prev = ("resync" if self._reason is not None else "snapshot"), self._reason, 0
            self._reason = None
        return GroupChange(kind, lsn, prev, self._seq, tables, reason)

    def _drained(self) -> bool:
        """Takes the published changes of each member; False if some were lost and the group restarted."""
        for f in self._followers:
            f.drain()
        lost = next((f.lost for f in self._followers if f.lost is not None), None)
        if lost is not None:
            self._begin_again(lost)
        return lost is None

    def _begin_again(self, reason: str) -> None:
        for f in self._followers:
            f.subscription.cancel()
        self._reason = reason
        with self._lock:
            if self._closed:
                return
        self._open()


def _sum(changes: Sequence[Change], schema: pa.Schema) -> pa.Table:
    if not changes:
        return schema.empty_table()
    table = pa.concat_tables([c.table for c in changes])
    return consolidate(table) if len(changes) > 1 and WEIGHT in table.column_names else table
