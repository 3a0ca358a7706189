"""Periodic work: processing-time watermarks, idle sources, time limits of sinks, and the removal of history that is no longer needed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.errors import PenstockError
from penstock.log import Part
from penstock.runtime.durations import duration_ms
from penstock.runtime.lifecycle import State
from penstock.runtime.retention import Retention
from penstock.runtime.storage.alignment import GROUP
from penstock.runtime.storage.pervalue import ValueWatermark
from penstock.runtime.storage.scrub import Scrub

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine

_logger = logging.getLogger(__name__)
_TICK_S = 1.0
_RETENTION_TICKS = 5
_ROOM_S = 0.05
"""Between two looks for room: each takes milliseconds, and checkpoints and queries need time to give up what they hold."""
_WATERMARK = "the watermark"
_IDLE = "the mark of an idle source"
_HISTORY = "the removal of history"
_TIMEOUT = "the time limit of a sink"
_SCRUB = "the verification of the log"
_CHECKPOINT = "a checkpoint"
_COUNTS = "the counting of rows"


@dataclass
class _Quiet:
    """Since when (monotonic clock) a source has had no commit, not even one that was held back; and its number of commits then."""

    since: float
    commits: int
    marked: bool = False


class Ticker:
    """A thread that wakes once a second. A failed task is reported and retried at its next turn; it does not delay others."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.retention = Retention(engine)
        self._scrub = Scrub(engine.storage)
        self._quiet: dict[int, _Quiet] = {}
        self._errors: dict[tuple[str, int | None], str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-ticker", daemon=True)
        self._thread.start()

    def error(self, object_id: int) -> str | None:
        """The current error of the tasks for an object, or of those for all objects."""
        found = self._scrub.findings.get(object_id)
        if found is not None:
            return str(found)
        return next((e for (_, of), e in list(self._errors.items()) if of is None or of == object_id), None)

    def _run(self) -> None:
        ticks = 0
        while self._waited():
            ticks += 1
            self._try(_WATERMARK, None, self._heartbeats)
            for object_id, sink in list(self._engine.sinks.items()):
                self._try(_TIMEOUT, object_id, sink.look)
            self._try(_SCRUB, None, self.scrub)
            self._try(_COUNTS, None, self._count)
            self._try(_CHECKPOINT, None, self._engine.checkpoints.tick)
            if ticks % _RETENTION_TICKS == 0:
                self._try(_HISTORY, None, self.trim)

    def _waited(self) -> bool:
        """Waits for the next tick, and makes room in the log whenever writers wait for it; False if the ticker ends."""
        due, crowded = time.monotonic() + _TICK_S, self._engine.storage.crowded
        while (left := due - time.monotonic()) > 0 and not self._stop.is_set():
            if crowded.wait(left) and not self._stop.wait(_ROOM_S):
                crowded.clear()
                self._try(_HISTORY, None, self._make_room)
        return not self._stop.is_set()

    def _make_room(self) -> None:
        """The first look finds that the log is too large; the second removes history, and decides whether rows are refused."""
        self.trim()
        if self.retention.pressed:
            self.trim()

    def _try(self, what: str, object_id: int | None, work: Callable[[], None]) -> None:
        key = (what, object_id)
        try:
            work()
        except Exception as error:
            if self._stop.is_set():
                return
            if isinstance(error, PenstockError) and error.code == "PSK-7005":
                # The database says so itself; with its next JVM it is over, and not only at the next turn of the task.
                self._errors.pop(key, None)
                return
            text = f"Failed, and is tried again: {what}: {error or type(error).__name__}"
            if self._errors.get(key) != text:
                _logger.warning("%s", text, exc_info=error)
            self._errors[key] = text
        else:
            self._errors.pop(key, None)

    def _heartbeats(self) -> None:
        engine = self._engine
        if engine.lifecycle.state is State.FAULTED:
            return
        timed: set[int] = set()
        if engine.running:
            timed = {t.object_id for planned in list(engine.jobs.planned.values()) for t in planned.compiled.timed}
        for info in engine.catalog.objects(Kind.SOURCE):
            # Sources of a group wait for each other, even if nothing reads them.
            if info.watermark is None or (info.id not in timed and GROUP not in info.options):
                continue
            if info.watermark.proctime:
                self._try(_WATERMARK, info.id, partial(self._heartbeat, info))
            elif "idle_timeout" in info.options:
                self._try(_IDLE, info.id, partial(self._mark_idle, info))
                self._try(_WATERMARK, info.id, partial(self._leave_idle_values, info))

    def _heartbeat(self, info: ObjectInfo) -> None:
        """Commits without rows; the processing-time clock sets the time of the commit."""
        self._engine.storage.commit([Part(object_id=info.id, column_count=len(info.columns))])

    def _mark_idle(self, info: ObjectInfo) -> None:
        """Marks a source idle that has had no commit for its `idle_timeout`. Its next commit makes it active again."""
        alignment = self._engine.storage.alignment
        quiet = self._quiet.get(info.id)
        # A source whose rows are held back is not idle.
        tried = self._engine.log.epoch(info.id) + alignment.refused(info.id)
        held = alignment.waits(info.id) or self._engine.storage.backpressure.holds(info.id)
        if quiet is None or quiet.commits != tried or held:
            self._quiet[info.id] = _Quiet(time.monotonic(), tried)
        elif not quiet.marked and (time.monotonic() - quiet.since) * 1000 >= duration_ms(info.options["idle_timeout"]):
            self._engine.storage.commit([Part(object_id=info.id, idle=True, column_count=len(info.columns))])
            quiet.commits, quiet.marked = quiet.commits + 1, True

    def _leave_idle_values(self, info: ObjectInfo) -> None:
        """Advances the watermark of a source past values that have become idle."""
        engine = self._engine
        clock = engine.storage.feeds[info.id].clock
        held = engine.storage.alignment.waits(info.id) or engine.storage.backpressure.holds(info.id)
        if isinstance(clock, ValueWatermark) and not held and clock.due():
            engine.storage.commit([Part(object_id=info.id, column_count=len(info.columns))])

    def trim(self) -> None:
        """Removes the part of the log that is no longer needed; skipped while DDL runs, which may change who needs it."""
        engine = self._engine
        # A query under construction relies on the history that it has seen, and one that is being restarted on its checkpoint.
        if not engine.ddl.acquire(blocking=False):
            return
        try:
            if engine.lifecycle.state is not State.FAULTED:
                self._trim()
        finally:
            engine.ddl.release()

    def _trim(self) -> None:
        engine = self._engine
        known = {o.id: o for o in engine.catalog.objects()}
        self.retention.forget(known)
        for info in known.values():
            self._try(_HISTORY, info.id, partial(self.retention.look, info))
        # Rows that leave the log are counted first.
        self._try(_COUNTS, None, self._engine.storage.totals.save)
        self.retention.trim()

    def _count(self) -> None:
        self._engine.storage.totals.tick(o.id for o in self._engine.catalog.objects() if not o.hidden)

    def scrub(self) -> None:
        """Verifies the next part of the log."""
        self._scrub.step(self._engine.settings.log.scrub_bytes)

    def stop(self) -> None:
        self._stop.set()
        self._engine.storage.crowded.set()
        self._thread.join(timeout=10)
