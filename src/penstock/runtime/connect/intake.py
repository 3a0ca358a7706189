"""A connector that brings rows into a source."""

from __future__ import annotations

import pyarrow as pa

from penstock.catalog.objects import ObjectInfo
from penstock.connect import Access, make_source
from penstock.connect.websocket import Status
from penstock.runtime.lifecycle import INTAKE_STEPS, IntakeState, Lifecycle
from penstock.runtime.storage.storage import Storage


class Intake:
    """Runs the connector of one source. What goes wrong shows in its status and disturbs nothing else."""

    def __init__(self, storage: Storage, info: ObjectInfo, access: Access) -> None:
        assert info.connector is not None
        self.error: str | None = None
        self._life = Lifecycle(f"The connector of {info.name}", IntakeState.STARTING, INTAKE_STEPS)
        self._storage = storage
        self._info = info
        self._source = make_source(info.connector, info.columns, access)
        self._source.start(self._insert, self._report)

    @property
    def state(self) -> IntakeState:
        return self._life.state

    def _insert(self, batch: pa.RecordBatch) -> None:
        self._storage.commit([self._storage.feed(self._info).part(batch)])

    def _report(self, status: Status) -> None:
        if self._life.attempt(IntakeState(status.state)):
            self.error = str(status.error) if status.error else None

    def stop(self) -> None:
        self._source.stop()
        self._life.attempt(IntakeState.STOPPED)
