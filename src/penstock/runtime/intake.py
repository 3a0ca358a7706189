"""A connector that brings rows into a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.catalog.objects import ObjectInfo
from penstock.connect import make_source
from penstock.connect.websocket import Status
from penstock.runtime.feed import commit

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine


class Intake:
    """Runs the connector of one source; what goes wrong is told in its status and disturbs nothing else."""

    def __init__(self, engine: Engine, info: ObjectInfo) -> None:
        assert info.connector is not None
        self.state = "starting"
        self.error: str | None = None
        self._engine = engine
        self._info = info
        self._source = make_source(info.connector, info.columns)
        self._source.start(self._insert, self._report)

    def _insert(self, batch: pa.RecordBatch) -> None:
        engine = self._engine
        commit(engine.log, engine.feeds, [engine.feeds[self._info.id].part(batch)])

    def _report(self, status: Status) -> None:
        self.state = status.state
        self.error = str(status.error) if status.error else None

    def stop(self) -> None:
        self._source.stop()
        self.state = "stopped"
