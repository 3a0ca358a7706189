"""A connector that feeds a source."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from penstock.catalog.objects import ObjectInfo
from penstock.connect import Access, Status, is_replayable, make_source
from penstock.runtime.connect.dropping import DroppingBuffer
from penstock.runtime.connect.replay import SourcePositions
from penstock.runtime.lifecycle import INTAKE_STEPS, IntakeState, Lifecycle
from penstock.runtime.storage.backpressure import limits, policy
from penstock.runtime.storage.storage import Storage


class Intake:
    """Runs the connector of one source. Errors appear in its status and affect nothing else.

    While the source is too far ahead of its group, or full, nothing is read from the connector, without a time limit. Rows that were already read are
    committed when the others have caught up, or when the connector is stopped, because it could not request them again. With `on_full = 'drop_oldest'` reading
    goes on, and the oldest rows that could not be committed are dropped.

    A replayable source goes on after the last batch that is in the log; the others lose what was not committed.
    """

    def __init__(self, storage: Storage, info: ObjectInfo, access: Access) -> None:
        assert info.connector is not None
        self.error: str | None = None
        self._life = Lifecycle(f"The connector of {info.name}", IntakeState.STARTING, INTAKE_STEPS)
        self._storage = storage
        self._info = info
        self._stopping = False
        self._source = make_source(info.connector, info.columns, access)
        self._positions: SourcePositions | None = None
        if is_replayable(info.connector):
            self._positions = SourcePositions(storage, info)
            self._source.resume(self._positions.last())
        self._buffer: DroppingBuffer | None = None
        if policy(info) == "drop_oldest":
            room = limits(info, storage.settings).rows
            self._buffer = DroppingBuffer(info.name, room, self._insert, storage.totals.of(info.id))
        self._source.start(self._insert if self._buffer is None else self._buffer.push, self._report)

    @property
    def state(self) -> IntakeState:
        return self._life.state

    def _insert(self, batch: pa.RecordBatch, position: str | None = None) -> None:
        feed = self._storage.open_feed(self._info)
        part = feed.part(batch)
        if self._positions is not None:
            part = replace(part, job_epoch=self._positions.note(position))
        self._storage.persist(part, lambda: self._stopping)

    def _report(self, status: Status) -> None:
        if self._life.attempt(IntakeState(status.state)):
            self.error = str(status.error) if status.error else None

    def stop(self) -> None:
        self._stopping = True
        self._storage.alignment.nudge(self._info.id)
        self._source.stop()
        if self._buffer is not None:
            self._buffer.stop()
        self._life.attempt(IntakeState.STOPPED)
