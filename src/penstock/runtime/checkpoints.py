"""Makes checkpoints: by interval, on demand, and when the database is closed."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from penstock.catalog.objects import Kind
from penstock.checkpoint import StreamCheckpoint
from penstock.errors import PenstockError
from penstock.runtime.jobs.recovery import Beginning
from penstock.runtime.jobs.saved import Saved, capture
from penstock.runtime.storage.checkpoints import Manifest, SavedJob
from penstock.spark.offsets import Reached

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine

_logger = logging.getLogger(__name__)


class Checkpoints:
    """A checkpoint has every job as it was at some moment, each at its own position: jobs go on while it is made. It is complete when the log has been read up to after all of them.

    What a job has read before the oldest checkpoint that is kept may leave the log.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._due = time.monotonic()
        self._kept: list[Manifest] = []
        store = engine.storage.checkpoints
        for id in store.ids()[-engine.settings.checkpoint.max_retained :]:
            try:
                self._kept.append(store.manifest(id))
            except PenstockError as why:
                # Queries go back to another one; this one is pruned in its turn.
                _logger.warning("checkpoint %d cannot be used: %s", id, why.detail)

    def tick(self) -> None:
        """Makes a checkpoint if one is due and any job has moved."""
        interval = self._engine.settings.checkpoint.interval_ms / 1000
        if interval and time.monotonic() - self._due >= interval:
            self._due = time.monotonic()
            self.make_if_moved()
        self._tell()

    @property
    def kept(self) -> list[Manifest]:
        """The checkpoints that are kept, the oldest first."""
        return list(self._kept)

    def make(self) -> Manifest:
        """Makes a checkpoint. Raises PSK-7004."""
        return self._make(always=True)

    def make_if_moved(self) -> None:
        """Makes a checkpoint unless nothing has changed since the last one. Raises PSK-7004."""
        self._make(always=False)

    def _make(self, *, always: bool) -> Manifest:
        with self._lock:
            made = self._made(always)
        self._tell()
        return made

    def _made(self, always: bool) -> Manifest:
        engine, storage = self._engine, self._engine.storage
        begun = time.monotonic()
        saved: dict[str, tuple[Beginning, Saved]] = {}
        for job in engine.jobs.beginnings():
            found = capture(job.folder)
            # A job that has begun again meanwhile is not what was captured.
            if found is not None and job.base == engine.jobs.base_of(job):
                saved[engine.jobs.recovery.key(job.folder)] = (job, found)
        jobs = {k: SavedJob(j.base, s.reached.lsn, s.reached.roster, {}) for k, (j, s) in saved.items()}
        if not always and self._kept and _positions(jobs) == _positions(self._kept[-1].jobs):
            return self._kept[-1]
        # What the jobs have recorded, and what they have read, must be on disk before the checkpoint is.
        storage.log.sync()
        lsn = storage.log.head
        body = self._body({k: s.small for k, (_, s) in saved.items()}, lsn)
        made = storage.checkpoints.write(
            body,
            jobs,
            {k: s.large for k, (_, s) in saved.items() if s.large},
            lsn=lsn,
            catalog=storage.catalog.serial,
            duration_ms=int((time.monotonic() - begun) * 1000),
        )
        keep = engine.settings.checkpoint.max_retained
        storage.checkpoints.prune(keep)
        self._kept = [*self._kept, made][-keep:]
        return made

    def _body(self, states: dict[str, bytes], lsn: int) -> StreamCheckpoint:
        engine, log = self._engine, self._engine.log
        sources = engine.catalog.objects(Kind.SOURCE, Kind.TABLE, Kind.LOOKUP)
        known = [m.id for m in self._kept] + engine.storage.checkpoints.ids()
        return StreamCheckpoint(
            id=max(known, default=0) + 1,
            epoch=lsn,
            source_sequences={o.name: log.epoch(o.id) for o in sources},
            sink_positions={s.name: s.durable_lsn for s in list(engine.sinks.values())},
            watermarks={o.name: wm for o in sources if (wm := log.watermark(o.id)) is not None},
            operator_states=states,
            created_at=int(time.time() * 1000),
        )

    def _tell(self) -> None:
        """Tells the running jobs up to where they will not go back."""
        jobs = self._engine.jobs
        for beginning in jobs.beginnings():
            key = jobs.recovery.key(beginning.folder)
            saved = [m.jobs.get(key) for m in self._kept]
            same = [s for s in saved if s is not None and s.base == beginning.base]
            # Of one that is missing from a checkpoint, that checkpoint keeps nothing.
            if same and (job := jobs.running_in(beginning)) is not None:
                job.kernel.durable(Reached(min(s.lsn for s in same), min(s.roster for s in same)))


def _positions(jobs: object) -> dict[str, tuple[int, int, int]]:
    assert isinstance(jobs, dict)
    return {k: (j.base, j.lsn, j.roster) for k, j in jobs.items()}
