"""The figures of a database as a whole."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.runtime.engine import Engine
from penstock.runtime.statements.inspect import ObjectStatus, status

_IN = frozenset({"source", "table"})
_QUERIES = frozenset({"stream", "materialized view"})


@dataclass(frozen=True)
class DatabaseStatus:
    """`opened`: how often it was opened. `rows_in`: rows of sources and tables; `rows_out`: of streams and views; `rows_delivered`: of sinks; all since they were created. `pending_…`: what waits for
    queries and sinks. `uploaded_id`: the newest checkpoint at `checkpoint.url`, and `upload_error` why the next one is not there yet. `recovery_ms`: how long the last open took. `rolled_back`: queries that went back to a checkpoint, ever; `restored`: the checkpoint that the database was last restored from.
    """

    state: str
    uptime_s: float
    opened: int
    lsn: int
    log_bytes: int
    objects: int
    failing: int
    rows_in: int
    rows_in_per_s: float
    rows_out: int
    rows_out_per_s: float
    rows_delivered: int
    pending_rows: int
    pending_bytes: int
    late_rows: int
    dropped_rows: int
    error_rows: int
    state_rows: int
    state_bytes: int
    subscriptions: int
    subscriptions_behind: int
    checkpoints_completed: int
    checkpoints_failed: int
    checkpoint_id: int | None
    checkpoint_bytes: int | None
    checkpoint_ms: int | None
    uploads_completed: int
    uploads_failed: int
    uploaded_id: int | None
    upload_error: str | None
    recovery_ms: int
    rolled_back: int
    restored: int | None


def database_status(engine: Engine, objects: Sequence[ObjectStatus] | None = None) -> DatabaseStatus:
    """`objects`: their status, if it is known already. Needs no JVM."""
    found = status(engine) if objects is None else objects
    fed, queries = [s for s in found if s.kind in _IN], [s for s in found if s.kind in _QUERIES]
    counts, kept = engine.storage.totals.database, engine.checkpoints.kept
    subscriptions = engine.hub.subscriptions()
    last = kept[-1] if kept else None
    waiting = [s for s in found if s.kind not in _IN]
    return DatabaseStatus(
        state=engine.lifecycle.state.value,
        uptime_s=time.time() - engine.opened_at,
        opened=counts.opened,
        lsn=engine.log.head,
        log_bytes=engine.log.size,
        objects=len(found),
        failing=sum(s.error is not None for s in found),
        rows_in=sum(s.rows for s in fed),
        rows_in_per_s=sum(s.rows_per_s for s in fed),
        rows_out=sum(s.rows for s in queries),
        rows_out_per_s=sum(s.rows_per_s for s in queries),
        rows_delivered=sum(s.rows for s in found if s.kind == "sink"),
        pending_rows=sum(s.pending_rows for s in waiting),
        pending_bytes=sum(s.pending_bytes for s in waiting),
        late_rows=sum(s.late_rows for s in found),
        dropped_rows=sum(s.dropped_rows + s.dropped_null_time for s in found),
        error_rows=sum(s.error_rows for s in found),
        state_rows=sum(s.state_rows for s in found),
        state_bytes=sum(s.state_bytes for s in found),
        subscriptions=len(subscriptions),
        subscriptions_behind=sum(s.behind for s in subscriptions),
        checkpoints_completed=counts.completed,
        checkpoints_failed=counts.failed,
        checkpoint_id=last.id if last is not None else None,
        checkpoint_bytes=last.bytes if last is not None else None,
        checkpoint_ms=last.duration_ms if last is not None else None,
        uploads_completed=counts.uploaded,
        uploads_failed=counts.upload_failed,
        uploaded_id=engine.uploads.last,
        upload_error=str(engine.uploads.error) if engine.uploads.error is not None else None,
        recovery_ms=engine.recovery_ms,
        rolled_back=counts.rolled_back,
        restored=engine.storage.restored,
    )
