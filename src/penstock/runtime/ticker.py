"""What happens with time alone: processing-time watermarks, and the removal of history that nobody needs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.log import Part
from penstock.runtime.retention import Retention

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine

_logger = logging.getLogger(__name__)
_TICK_S = 1.0
_RETENTION_TICKS = 5
_WATERMARK = "the watermark of processing time"
_HISTORY = "the removal of history"


class Ticker:
    """A thread that wakes once a second. Work that fails is reported, tried again at its next turn, and holds up no other."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._retention = Retention(engine)
        self._errors: dict[tuple[str, int | None], str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-ticker", daemon=True)
        self._thread.start()

    def error(self, object_id: int) -> str | None:
        """What fails at present in the work for an object, or in that for all of them."""
        return next((e for (_, of), e in list(self._errors.items()) if of is None or of == object_id), None)

    def _run(self) -> None:
        ticks = 0
        while not self._stop.wait(_TICK_S):
            ticks += 1
            self._try(_WATERMARK, None, self._heartbeats)
            if ticks % _RETENTION_TICKS == 0:
                self._try(_HISTORY, None, self._trim)

    def _try(self, what: str, object_id: int | None, work: Callable[[], None]) -> None:
        key = (what, object_id)
        try:
            work()
        except Exception as error:
            if self._stop.is_set():
                return
            text = f"Failed, and is tried again: {what}: {error or type(error).__name__}"
            if self._errors.get(key) != text:
                _logger.warning("%s", text, exc_info=error)
            self._errors[key] = text
        else:
            self._errors.pop(key, None)

    def _heartbeats(self) -> None:
        engine = self._engine
        if not engine.running:
            return
        timed = {t.object_id for planned in list(engine.planned.values()) for t in planned.compiled.timed}
        for info in engine.catalog.objects(Kind.SOURCE):
            if info.id in timed and info.watermark is not None and info.watermark.proctime:
                self._try(_WATERMARK, info.id, partial(self._heartbeat, info))

    def _heartbeat(self, info: ObjectInfo) -> None:
        now = int(time.time() * 1000)
        self._engine.log.append([Part(object_id=info.id, watermark=now, schema_version=len(info.columns))])

    def _trim(self) -> None:
        floors: dict[int, int] = {}

        def add(info: ObjectInfo) -> None:
            floors[info.id] = self._retention.floor(info)

        for info in self._engine.catalog.objects():
            self._try(_HISTORY, info.id, partial(add, info))
        self._retention.trim(floors)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=10)
