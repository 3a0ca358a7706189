"""Which part of the log is still needed: by jobs, by sinks, by the retained history, and to open the database again."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.runtime.durations import duration_ms, size_bytes
from penstock.runtime.probes import probe_owner

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine


class Retention:
    """Trims the log. An entry goes when every reader has it behind it and the object's history need not reach back to it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._saved: dict[int, int] = {}

    def trim(self, floors: Mapping[int, int]) -> None:
        """Removes what is at or below each object's floor."""
        engine = self._engine
        engine.log.trim(floors)
        for object_id, lsn in floors.items():
            if lsn:
                engine.index.trim(object_id, lsn)

    def floor(self, info: ObjectInfo) -> int:
        """The highest LSN at or below which nothing of the object is needed."""
        engine = self._engine
        floor = self._history(info)
        if floor == 0:
            return 0
        for dependent in engine.catalog.dependents(info.id):
            floor = min(floor, self._consumed(dependent))
        if info.kind in (Kind.TABLE, Kind.LOOKUP, Kind.VIEW):
            floor = min(floor, self._saved_lsn(info, floor))
        return floor

    def _history(self, info: ObjectInfo) -> int:
        """The LSN up to which the object's history may go, by the size or age that it is kept for."""
        engine = self._engine
        option = info.options.get("retain_history")
        limit = size_bytes(option) if option else engine.settings.log.retain_bytes
        if info.on_demand or probe_owner(info.name) is not None:
            limit = 0  # Nobody can ask for their past.
        if limit is None:
            assert option is not None
            return engine.log.before_time(info.id, int(time.time() * 1000) - duration_ms(option))
        return engine.log.beyond_bytes(info.id, limit)

    def _consumed(self, dependent: ObjectInfo) -> int:
        engine = self._engine
        if dependent.kind is Kind.SINK:
            sink = engine.sinks.get(dependent.id)
            return sink.durable_lsn if sink is not None else 0
        job = engine.jobs.get(dependent.id)
        if job is None:
            return engine.log.head if dependent.sql.startswith("LATE DATA") else 0
        return job.kernel.durable_lsn

    def _saved_lsn(self, info: ObjectInfo, floor: int) -> int:
        engine = self._engine
        saved = self._saved.get(info.id, 0)
        pending, _ = engine.log.amount(info.id, after=saved, up_to=floor)
        path = engine.layout.snapshot(info.id)
        # Less than a segment would free nothing, and contents are not written more often than changes as large as they are come.
        if pending > max(engine.settings.log.segment_bytes, path.stat().st_size if path.exists() else 0):
            path.parent.mkdir(parents=True, exist_ok=True)
            _, saved = engine.store.position(info.id)
            engine.store.save(info.id, path)
            self._saved[info.id] = saved
        return saved
