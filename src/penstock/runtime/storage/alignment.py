"""Sources that may not drift apart in event time: the options `watermark_group`, `max_drift` and `on_drift`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import NamedTuple, TypeVar

from penstock.catalog.objects import ObjectInfo
from penstock.errors import ConnectorError, fail
from penstock.log import Entry, Part
from penstock.runtime.durations import duration_ms
from penstock.runtime.storage.interrupts import uninterrupted

T = TypeVar("T")
Marks = Mapping[int, int | None]
"""The watermarks of the objects of one commit after it."""

GROUP = "watermark_group"
_LOOK_S = 5.0
"""Every event that can end a wait wakes the waiter; this bounds the cost of a missed one."""

_logger = logging.getLogger(__name__)


def check(info: ObjectInfo, others: Iterable[ObjectInfo]) -> None:
    """Refuses options of a source that cannot be honoured. `others`: the other sources of the database."""
    options = info.options
    if GROUP not in options:
        given = next((n for n in ("max_drift", "on_drift") if n in options), None)
        if given is not None:
            raise fail("PSK-1012", f"{given} needs a watermark group.", hint=f"Add {GROUP} = 'name'.")
        return
    if not options[GROUP].strip():
        raise fail("PSK-1011", f"{GROUP} is empty.", hint="Sources with the same name are a group.")
    if info.watermark is None or info.watermark.proctime:
        raise fail(
            "PSK-1012", f"{GROUP} needs an event time.", hint="Declare WATERMARK FOR a column that comes with the rows."
        )
    if "max_drift" not in options:
        raise fail(
            "PSK-1012", f"{GROUP} needs max_drift.", hint="Say how far a source may be ahead: max_drift = '10 seconds'."
        )
    drift_ms = duration_ms(options["max_drift"])
    if drift_ms < 0:
        raise fail("PSK-1011", f"max_drift cannot be negative ({options['max_drift']}).")
    if info.connector is not None and _policy(info) == "reject":
        raise fail(
            "PSK-1012",
            f"on_drift = 'reject' would stop the connector of {info.name}, because nothing can send the rows again.",
            hint="Write on_drift = 'pause' or 'warn'.",
        )
    for other in others:
        if _group(other) == _group(info) and duration_ms(other.options["max_drift"]) != drift_ms:
            raise fail(
                "PSK-1011",
                f"max_drift is '{options['max_drift']}', but source {other.name} of watermark group "
                f"'{other.options[GROUP]}' has '{other.options['max_drift']}'.",
                hint="All sources of a group need the same max_drift.",
            )


def _group(info: ObjectInfo) -> str | None:
    """The name of the group; like all names it is case-insensitive."""
    return info.options[GROUP].strip().lower() if GROUP in info.options else None


def _policy(info: ObjectInfo) -> str:
    return info.options.get("on_drift", "pause").lower()


class Ahead(ConnectorError):
    """PSK-5014: rows for a source that is too far ahead. Nothing of the commit was stored; if it `waits`, it may be retried."""

    def __init__(self, detail: str, hint: str, object_id: int, marks: Marks, *, waits: bool) -> None:
        super().__init__("PSK-5014", detail, hint=hint)
        self.object_id = object_id
        self.marks = marks
        self.waits = waits


class Drift(NamedTuple):
    """How far a source is ahead of the slowest other member, which one that is, whether its next rows are held, and how many commits wait."""

    ms: int
    behind: str | None
    held: bool
    waiting: int
    warning: str | None


@dataclass(eq=False)
class _Waiter:
    """A waiting commit. It waits on a queue, because a signal handler may put into a queue at any time."""

    marks: Marks
    bell: SimpleQueue[None] = field(default_factory=SimpleQueue)

    def ring(self) -> None:
        self.bell.put(None)


@dataclass(eq=False)
class _Member:
    info: ObjectInfo
    watermark: int | None
    idle: bool
    waiters: list[_Waiter] = field(default_factory=list)
    since: float = 0.0
    """The time (monotonic clock) up to which its held time is accounted for."""
    refused: int = 0
    warned: bool = False

    def __post_init__(self) -> None:
        self.group = _group(self.info)
        self.policy = _policy(self.info)
        self.max_ms = duration_ms(self.info.options["max_drift"])


class Alignment:
    """Holds back the rows of sources that are too far ahead of their group. Thread-safe.

    A source is ahead if its watermark is more than `max_drift` past the smallest of the other members that have one and are not idle. The watermark
    *before* the rows decides: the slowest member is never ahead, so of producers that write one source each, one can always continue,
    and a source that is not ahead accepts a commit of any time span. Other members of the same commit count with their watermarks after it.

    Its lock is taken last, except for those of the clocks, and nothing waits under it.
    """

    def __init__(self, stood_still: Callable[[int, float], None]) -> None:
        """`stood_still` is called with the seconds that a source was held, which do not count as idle time."""
        self._stood_still = stood_still
        self._lock = threading.Lock()
        self._members: dict[int, _Member] = {}
        self._closed = False

    # Members

    def join(self, info: ObjectInfo, watermark: int | None, *, idle: bool) -> None:
        """Adds a source, if it has a group. `watermark` and `idle` are its state in the log."""
        if GROUP in info.options:
            with self._lock:
                self._members[info.id] = _Member(info, watermark, idle)

    def leave(self, object_id: int) -> None:
        with self._lock:
            gone = self._members.pop(object_id, None)
            if gone is not None:
                _ring(gone.waiters)
                self._release(gone)

    def moved(self, entries: Iterable[Entry]) -> None:
        """Updates the members after a commit. Called in the order of each object's commits."""
        if not self._members:
            return
        with self._lock:
            for entry in entries:
                member = self._members.get(entry.object_id)
                if member is not None:
                    member.watermark, member.idle = entry.watermark, entry.idle
                    self._release(member)

    def nudge(self, object_id: int) -> None:
        """Wakes the commits that wait to write to a source."""
        with self._lock:
            member = self._members.get(object_id)
            _ring(member.waiters if member is not None else ())

    def close(self) -> None:
        """Ends the waits of writers: the database is closed. Connectors are stopped one by one."""
        with self._lock:
            self._closed = True
            for member in self._members.values():
                _ring(member.waiters)

    def _release(self, moved: _Member) -> None:
        for member in self._members.values():
            if member.group == moved.group and member is not moved:
                _ring(w for w in member.waiters if not self._ahead(member, w.marks))

    # The rule

    def check(self, parts: Sequence[Part], after: Callable[[Part], int | None]) -> None:
        """Raises `Ahead` if rows may not be committed now. Called under the ordering locks of the objects; `after` predicts watermarks."""
        if not self._members:
            return
        mine = [p for p in parts if p.object_id in self._members and any(b.num_rows for b in p.batches)]
        marks = {p.object_id: after(p) for p in mine} if len(mine) > 1 else {}
        if mine:
            self.admit([p.object_id for p in mine], marks)

    def admit(self, object_ids: Iterable[int], marks: Marks) -> None:
        """Raises `Ahead` if one of the sources accepts no rows now."""
        with self._lock:
            found = [(m, self._gap(m, marks)) for i in object_ids if (m := self._members.get(i)) is not None]
            ahead = [(m, *gap) for m, gap in found if gap is not None and gap[0] > m.max_ms]
            refusing = [a for a in ahead if a[0].policy == "reject"] or [a for a in ahead if a[0].policy == "pause"]
            if refusing:
                raise self._refusal(*refusing[0], marks)
            warnings = [self._text(*a) for a in ahead if not a[0].warned]
            late = {m.info.id for m, *_ in ahead}
            for member, _ in found:
                member.warned = member.info.id in late
        for text in warnings:
            _logger.warning("%s", text)

    def _gap(self, member: _Member, marks: Marks) -> tuple[int, _Member] | None:
        """How far a member is ahead of the slowest other member, and which one that is; None if there is none to compare with."""
        others = [
            (m.watermark if (mark := marks.get(m.info.id)) is None else max(m.watermark, mark), m)
            for m in self._members.values()
            if m.group == member.group and m is not member and m.watermark is not None and not m.idle
        ]
        if member.watermark is None or not others:
            return None
        floor, slowest = min(others, key=lambda other: other[0])
        return member.watermark - floor, slowest

    def _ahead(self, member: _Member, marks: Marks) -> bool:
        gap = self._gap(member, marks)
        return gap is not None and gap[0] > member.max_ms

    def _text(self, member: _Member, ms: int, slowest: _Member) -> str:
        return (
            f"{member.info.name} is {ms / 1000:g} s ahead of {slowest.info.name}; "
            f"watermark group '{member.info.options[GROUP]}' allows {member.max_ms / 1000:g} s"
        )

    def _refusal(self, member: _Member, ms: int, slowest: _Member, marks: Marks) -> Ahead:
        member.refused += 1
        other = slowest.info.name
        return Ahead(
            f"{self._text(member, ms, slowest)}.",
            f"Bring {other} forward with newer rows or db.source('{other}').watermark(t), give it an idle_timeout, "
            f"or create {member.info.name} with on_drift = 'warn'.",
            member.info.id,
            marks,
            waits=member.policy == "pause",
        )

    # Waiting

    def attempt(self, commit: Callable[[], T], seconds: float) -> T:
        """Calls `commit` until it is not ahead; retries whenever that may have changed, up to a timeout or until the database is closed.

        The caller must hold no lock. Ctrl-C ends the wait, and nothing is stored.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                return commit()
            except Ahead as ahead:
                if not ahead.waits:
                    raise
                left = deadline - time.monotonic()
                if left <= 0:
                    ahead.detail += f" It has waited {seconds:g} s."
                    ahead.hint = f"{ahead.hint} SET engine.drift_timeout_ms waits longer."
                    raise
                held = ahead
            self._wait(held, left, lambda: self._closed)
            if self._closed:
                raise fail("PSK-0004", "The database is closed.")

    def persist(self, commit: Callable[[], T], over: Callable[[], bool]) -> T:
        """Calls `commit` until it is not ahead, without a time limit. When `over` becomes true, which `nudge` signals, calls it immediately."""
        while True:
            try:
                return commit()
            except Ahead as ahead:
                held = ahead
            self._wait(held, _LOOK_S, over)

    def _wait(self, ahead: Ahead, seconds: float, over: Callable[[], bool]) -> None:
        waiter = _Waiter(ahead.marks)
        # Ctrl-C wakes the waiter too, and is raised when it has been removed.
        with uninterrupted(waiter.ring):
            with self._lock:
                member = self._members.get(ahead.object_id)
                if member is None or over() or not self._ahead(member, ahead.marks):
                    return
                if not member.waiters:
                    member.since = time.monotonic()
                member.waiters.append(waiter)
            try:
                with suppress(Empty):
                    waiter.bell.get(timeout=min(seconds, _LOOK_S))
            finally:
                with self._lock:
                    member.waiters.remove(waiter)
                    now = time.monotonic()
                    self._stood_still(ahead.object_id, now - member.since)
                    member.since = now

    # Figures

    def drift(self, object_id: int) -> Drift | None:
        """The drift of a source; None if it has no group."""
        with self._lock:
            member = self._members.get(object_id)
            if member is None:
                return None
            gap = self._gap(member, {})
            if gap is None or gap[0] <= 0:
                return Drift(0, None, False, len(member.waiters), None)
            ahead = gap[0] > member.max_ms
            warning = f"{self._text(member, *gap)}." if ahead and member.policy == "warn" else None
            return Drift(gap[0], gap[1].info.name, ahead and warning is None, len(member.waiters), warning)

    def waits(self, object_id: int) -> bool:
        """Whether rows for a source are waiting: it is held, and not idle."""
        with self._lock:
            member = self._members.get(object_id)
            return member is not None and bool(member.waiters)

    def refused(self, object_id: int) -> int:
        """How often rows for a source were held or refused."""
        with self._lock:
            member = self._members.get(object_id)
            return 0 if member is None else member.refused


def _ring(waiters: Iterable[_Waiter]) -> None:
    for waiter in waiters:
        waiter.ring()
