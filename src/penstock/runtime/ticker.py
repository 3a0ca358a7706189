"""What happens with time alone: processing-time watermarks, and the removal of history that nobody needs."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from penstock.catalog.objects import Kind
from penstock.log import Part
from penstock.runtime.retention import Retention

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine

_TICK_S = 1.0
_RETENTION_TICKS = 5


class Ticker:
    """A thread that wakes once a second."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._retention = Retention(engine)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-ticker", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        ticks = 0
        while not self._stop.wait(_TICK_S):
            ticks += 1
            try:
                self._heartbeats()
                if ticks % _RETENTION_TICKS == 0:
                    self._retention.run()
            except Exception:
                if self._stop.is_set():
                    return
                # Housekeeping is tried again at the next tick; a fault of the log itself reaches every writer anyway.
                continue

    def _heartbeats(self) -> None:
        engine = self._engine
        if not engine.running:
            return
        now = int(time.time() * 1000)
        timed = {t.object_id for planned in list(engine.planned.values()) for t in planned.compiled.timed}
        for info in engine.catalog.objects(Kind.SOURCE):
            if info.id in timed and info.watermark is not None and info.watermark.proctime:
                engine.log.append([Part(object_id=info.id, watermark=now, schema_version=len(info.columns))])

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=10)
