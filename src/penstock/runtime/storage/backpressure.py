"""Sources that are filled faster than queries read them: the options `max_pending_rows`, `max_pending_bytes` and `on_full`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.config import Settings
from penstock.errors import ConnectorError, fail
from penstock.log import Log, Part
from penstock.runtime.durations import size_bytes

T = TypeVar("T")

ROWS, BYTES, POLICY = "max_pending_rows", "max_pending_bytes", "on_full"
_LOOK_S = 0.02
"""A query that records an epoch tells nobody. Only writers that are held look, so this costs nothing otherwise."""
_RECENT_S = 2.0
_HIGH = 0.8


class Limits(NamedTuple):
    """0: no limit."""

    rows: int
    bytes: int


class Reader(NamedTuple):
    """A running query that reads a source, and the LSN up to which it has processed it."""

    name: str
    lsn: int


class Pending(NamedTuple):
    """The rows of a source that some running query has not processed yet, by the query that is furthest behind; and the limits."""

    rows: int
    bytes: int
    behind: str | None
    limits: Limits

    @property
    def utilization(self) -> float:
        """How much of the limits is used; 1 or more: no rows are accepted. 0 if there are none."""
        rows, size = self.limits
        return max(self.rows / rows if rows else 0.0, self.bytes / size if size else 0.0)

    @property
    def is_backpressured(self) -> bool:
        """True above 80 % of the limits, so that a producer can slow down before it is held."""
        return self.utilization > _HIGH


class Full(ConnectorError):
    """PSK-5020: rows for a source whose limits are reached; PSK-5013: rows for a log that is too large. Nothing of the commit was stored; if it `waits`, it may be retried."""

    def __init__(self, detail: str, object_id: int, *, waits: bool, code: str = "PSK-5020") -> None:
        super().__init__(code, detail)
        self.object_id = object_id
        self.waits = waits


def limits(info: ObjectInfo, settings: Settings) -> Limits:
    """The limits of a source: its own, or those of the database. Raises PSK-1011."""
    rows, size = settings.engine.max_pending_rows, settings.engine.max_pending_bytes
    if ROWS in info.options:
        text = info.options[ROWS]
        rows = int(text) if text.isdecimal() else 0
        if not rows:
            raise fail("PSK-1011", f"{ROWS} = '{text}' is not a positive number.")
    if BYTES in info.options:
        text = info.options[BYTES]
        size = size_bytes(text) or 0
        if not size:
            raise fail("PSK-1011", f"{BYTES} = '{text}' is not a size.", hint="Write it like '64mb'.")
    return Limits(rows, size)


def policy(info: ObjectInfo) -> str:
    return info.options.get(POLICY, "block").lower()


def check(info: ObjectInfo, settings: Settings) -> None:
    """Refuses options of a source that cannot be honoured."""
    found = limits(info, settings)
    if POLICY not in info.options:
        return
    if not any(found):
        raise fail("PSK-1012", f"{POLICY} needs a limit.", hint=f"Add {ROWS} = n or {BYTES} = '64mb'.")
    if policy(info) == "reject" and info.connector is not None:
        raise fail(
            "PSK-1012",
            f"{POLICY} = 'reject' would stop the connector of {info.name}, because nothing can send the rows again.",
            hint=f"Write {POLICY} = 'block' or 'drop_oldest'.",
        )
    if policy(info) == "drop_oldest":
        if info.connector is None:
            raise fail(
                "PSK-1012",
                f"{POLICY} = 'drop_oldest' needs a connector: rows that were inserted are never dropped.",
                hint=f"Write {POLICY} = 'block' or 'reject'.",
            )
        if not found.rows:
            raise fail("PSK-1012", f"{POLICY} = 'drop_oldest' needs {ROWS}: so many rows wait before the oldest go.")


class Backpressure:
    """Holds back rows before the commit, while too many that were committed are not processed. Thread-safe.

    What is pending *before* the rows decides, so a commit of any size is accepted once there is room, and the limits can be exceeded by one commit. Queries that
    have failed or are stopped do not count: `log.max_bytes` limits what is kept for them. Nothing waits under a lock.
    """

    def __init__(self, log: Log, settings: Callable[[], Settings], stood_still: Callable[[int, float], None]) -> None:
        """`stood_still` is called with the seconds that a source was held, which do not count as idle time."""
        self.readers: Callable[[int], Iterable[Reader]] = lambda object_id: ()
        """The running queries that read a source directly."""
        self._log = log
        self._settings = settings
        self._stood_still = stood_still
        self._sources: dict[int, ObjectInfo] = {}
        self._held: dict[int, float] = {}
        self._closed = threading.Event()

    def join(self, info: ObjectInfo) -> None:
        if info.kind is Kind.SOURCE:
            self._sources[info.id] = info

    def leave(self, object_id: int) -> None:
        self._sources.pop(object_id, None)
        self._held.pop(object_id, None)

    def close(self) -> None:
        """Ends the waits of writers: the database is closed."""
        self._closed.set()

    def pending(self, object_id: int) -> Pending:
        info = self._sources.get(object_id)
        found = Pending(0, 0, None, limits(info, self._settings()) if info is not None else Limits(0, 0))
        for reader in self.readers(object_id):
            size, rows = self._log.amount(object_id, after=reader.lsn)
            if size > found.bytes:
                found = Pending(rows, size, reader.name, found.limits)
        return found

    def check(self, parts: Sequence[Part]) -> None:
        """Raises `Full` if rows may not be committed now."""
        for part in parts:
            if part.object_id in self._sources and any(b.num_rows for b in part.batches):
                self.admit(part.object_id)

    def admit(self, object_id: int) -> None:
        """Raises `Full` if a source accepts no rows now."""
        info = self._sources.get(object_id)
        if info is None or not any(limits(info, self._settings())):
            return
        pending = self.pending(object_id)
        if pending.utilization < 1:
            return
        self._held[object_id] = time.monotonic()
        rows, size = pending.limits
        allowed = " and ".join(t for t in (f"{rows} rows" if rows else "", f"{size} bytes" if size else "") if t)
        raise Full(
            f"{info.name} is full: {pending.behind} has not processed {pending.rows} rows ({pending.bytes} bytes); {allowed} may be pending.",
            object_id,
            waits=policy(info) != "reject",
        )

    def holds(self, object_id: int) -> bool:
        """Whether rows for a source are, or were a moment ago, held back: it is not idle."""
        return time.monotonic() - self._held.get(object_id, float("-inf")) < _RECENT_S

    def attempt(self, commit: Callable[[], T], seconds: float) -> T:
        """Calls `commit` until there is room, up to a timeout or until the database is closed. The caller must hold no lock."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                return commit()
            except Full as full:
                if not full.waits:
                    raise
                if time.monotonic() >= deadline:
                    full.detail += f" It has waited {seconds:g} s."
                    full.hint = f"{full.hint} SET engine.full_timeout_ms waits longer."
                    raise
                held = full
            if self._closed.wait(_LOOK_S):
                raise fail("PSK-0004", "The database is closed.")
            self._stood_still(held.object_id, _LOOK_S)

    def persist(self, commit: Callable[[], T], over: Callable[[], bool]) -> T | None:
        """Calls `commit` until there is room, without a time limit. Gives up, and returns None, when `over` becomes true."""
        while not over():
            try:
                return commit()
            except Full as full:
                self._stood_still(full.object_id, _LOOK_S)
            time.sleep(_LOOK_S)
        return None
