"""Which part of the log is still needed, and by whom: jobs, sinks, the retained history, and the next open."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from penstock.catalog.objects import Kind, ObjectInfo, Role
from penstock.errors import PenstockError, fail
from penstock.runtime.durations import duration_ms, size_bytes
from penstock.runtime.lifecycle import JobState

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine

HISTORY = "its history"


class Floor(NamedTuple):
    """The highest LSN up to which an object's entries are no longer needed, and who needs the later ones."""

    lsn: int
    held_by: str


class Retention:
    """Trims the log. An entry is removed when every reader is past it and it is outside the object's retained history."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._saved: dict[int, int] = {}
        self.floors: dict[int, Floor] = {}
        """The floors found by the last check, by object."""
        self.pressed = False
        """Whether the log is, or was a moment ago, beyond `log.max_bytes`."""

    def trim(self) -> None:
        """Removes the entries up to each object's floor."""
        engine = self._engine
        floors = {i: f.lsn for i, f in self.floors.items() if engine.catalog.has_id(i)}
        # Even without floors: segments with few needed entries are thinned out.
        engine.log.trim(floors)
        for object_id, lsn in floors.items():
            if lsn:
                engine.storage.index.trim(object_id, lsn)
        self._measure()

    def _measure(self) -> None:
        """Compares the log with `log.max_bytes`. Beyond it history is removed and, if that is not enough, new rows are refused."""
        engine, limit = self._engine, self._engine.settings.log.max_bytes
        size = engine.log.size if limit else 0
        over = size > limit > 0
        if over and self.pressed:
            held = max(self.floors, key=lambda i: engine.log.retained(i)[0], default=None)
            by = f"; most of it is held by {self.floors[held].held_by}" if held is not None else ""
            engine.storage.full = fail("PSK-5013", f"The log has {size} bytes, log.max_bytes allows {limit}{by}.")
        elif not over:
            engine.storage.full = None
        # Hysteresis: with one threshold, history would come and go with every check.
        self.pressed = over or (self.pressed and size > limit * 0.8)

    def look(self, info: ObjectInfo) -> None:
        """Finds the floor of one object."""
        engine = self._engine
        floor = Floor(self._history(info), HISTORY)
        for dependent in engine.catalog.dependents(info.id):
            consumed = self._consumed(dependent)
            if consumed < floor.lsn:
                floor = Floor(consumed, f"{dependent.kind.value} {engine.owner(dependent).name}")
        if info.has_contents and floor.lsn:
            saved = self._saved_lsn(info, floor.lsn)
            if saved < floor.lsn:
                floor = Floor(saved, "its contents, which are not written down yet")
        self.floors[info.id] = floor

    def forget(self, known: Mapping[int, ObjectInfo]) -> None:
        for object_id in [i for i in self.floors if i not in known]:
            del self.floors[object_id]
            self._saved.pop(object_id, None)

    def _history(self, info: ObjectInfo) -> int:
        """The LSN up to which the object's history may be removed, by its retained size or age."""
        engine = self._engine
        option = info.options.get("retain_history")
        limit = size_bytes(option) if option else engine.settings.log.retain_bytes
        if info.on_demand or info.role is Role.PROBE or self.pressed:
            limit = 0  # Nobody can read their history, or it has to be removed.
        if limit is None:
            assert option is not None
            return engine.log.before_time(info.id, int(time.time() * 1000) - duration_ms(option))
        return engine.log.beyond_bytes(info.id, limit)

    def _consumed(self, dependent: ObjectInfo) -> int:
        """The LSN up to which a dependent has consumed its input."""
        engine = self._engine
        if dependent.kind is Kind.SINK:
            sink = engine.sinks.get(dependent.id)
            return sink.durable_lsn if sink is not None else 0
        if dependent.role in (Role.LATE_ROWS, Role.ERRORS):
            return engine.log.head
        if self._let_go(dependent):
            return engine.log.head
        job = engine.jobs.by_object.get(dependent.id)
        return job.kernel.durable_lsn if job is not None else 0

    def _let_go(self, info: ObjectInfo) -> bool:
        """Whether a query has failed for too long: it no longer holds the log, and starts over when it is restarted."""
        trouble = self._engine.jobs.trouble(info)
        if trouble is None or trouble.state != JobState.FAILED.value:
            return False
        patience = 0 if self.pressed else self._engine.settings.engine.release_failed_ms / 1000
        if time.time() - trouble.since < patience:
            return False
        try:
            self._engine.jobs.release(info)
        except PenstockError:
            return False  # The disk refuses; it is tried again.
        return True

    def _saved_lsn(self, info: ObjectInfo, floor: int) -> int:
        engine = self._engine
        saved = max(self._saved.get(info.id, 0), engine.storage.store.saved_lsn(info.id))
        pending, _ = engine.log.amount(info.id, after=saved, up_to=floor)
        path = engine.storage.layout.snapshot(info.id)
        # Anything less than a whole segment frees nothing. Don't rewrite the snapshot until the pending changes are at least as large as it is.
        if pending > max(engine.settings.log.segment_bytes, path.stat().st_size if path.exists() else 0):
            engine.storage.check_sound(info)
            saved = self._saved[info.id] = engine.storage.save(info)
        return saved


__all__ = ["HISTORY", "Floor", "Retention"]
