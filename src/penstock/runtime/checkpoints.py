"""Makes checkpoints: by interval, on demand, and when the database is closed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.runtime.jobs.saving import Captured, Linked, capture_all, link
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
        self.alone = threading.RLock()
        """One checkpoint at a time. Comes before the lock of DDL, which is only held while files are linked: statements do not wait for the disk."""
        self._due = time.monotonic()
        self._kept: list[Manifest] = []
        self._spared: Manifest | None = None
        """Stays beside those that are kept: the newest one in which no contents were damaged."""
        self._find(engine.settings.checkpoint.max_retained)

    def _find(self, keep: int) -> None:
        """Finds the checkpoints in the folder that can be used. Queries go back to another one; one that cannot is pruned in its turn."""
        store = self._engine.storage.checkpoints
        try:
            ids = store.ids()[-keep:]
            self._spared = store.spared(keep)
        except PenstockError as why:
            _logger.warning("checkpoints cannot be used: %s", why.detail)
            return
        for id in ids:
            try:
                self._kept.append(store.manifest(id))
            except PenstockError as why:
                _logger.warning("checkpoint %d cannot be used: %s", id, why.detail)

    def tick(self) -> None:
        """Makes a checkpoint if one is due and any job has moved, or the log is full and older ones hold it. While a statement changes objects, or another checkpoint is made, the next tick does it."""
        interval = self._engine.settings.checkpoint.interval_ms / 1000
        if interval and time.monotonic() - self._due >= interval and self.alone.acquire(blocking=False):
            try:
                if self._engine.ddl.acquire(blocking=False):
                    try:
                        self._due = time.monotonic()
                        linked = self._begin_if_moved()
                    finally:
                        self._engine.ddl.release()
                    if linked is not None:
                        self.complete(linked)
            finally:
                self.alone.release()
        self._tell()

    @property
    def kept(self) -> list[Manifest]:
        """The checkpoints that are kept, the oldest first."""
        there = self._engine.storage.checkpoints.ids()
        spared = [self._spared] if self._spared is not None else []
        return [m for m in (*spared, *self._kept) if m.id in there]

    def begin(self) -> Linked:
        """Links the files of a checkpoint. Raises PSK-7004. The caller is `alone` and holds the lock of DDL."""
        return self._link(capture_all(self._engine.storage))

    def make(self, *, prune: bool = True) -> Manifest:
        """Makes a checkpoint. Raises PSK-7004, PSK-6014. The caller is `alone` and holds the lock of DDL."""
        return self.complete(self.begin(), prune=prune)

    def make_if_moved(self, *, ends: bool = False) -> None:
        """Makes a checkpoint unless no job has moved since the last one or, when the database `ends`, nothing at all. Raises PSK-7004, PSK-6014. The caller is `alone` and holds the lock of DDL."""
        linked = self._begin_if_moved(ends=ends)
        if linked is not None:
            self.complete(linked)

    def _begin_if_moved(self, *, ends: bool = False) -> Linked | None:
        jobs = capture_all(self._engine.storage)
        now = {key: c.job for key, c in jobs.items()}
        last = self._kept[-1] if self._kept else None
        grown = last is not None and ends and last.lsn != self._engine.log.head
        # Older checkpoints hold the log. While it has no room, no job moves, and they would hold it for ever.
        compared = self._kept if self._engine.storage.full is not None else self._kept[-1:]
        moved = any(_positions(now) != _positions(m.jobs) for m in compared)
        return self._link(jobs) if last is None or grown or moved else None

    def _link(self, jobs: Mapping[str, Captured]) -> Linked:
        failing = [i for i, s in list(self._engine.sinks.items()) if s.error is not None]
        try:
            return link(self._engine.storage, jobs, failing)
        except BaseException:
            self._engine.storage.totals.database.failed += 1
            raise

    def complete(self, linked: Linked, *, prune: bool = True) -> Manifest:
        """Completes a checkpoint, and removes older ones. Raises PSK-7004, PSK-6014. The caller is `alone`; statements may change objects."""
        settings = self._engine.settings.checkpoint
        try:
            made = linked.complete(linked.begun + settings.timeout_ms / 1000)
        except BaseException:
            self._engine.storage.totals.database.failed += 1
            raise
        self._engine.storage.totals.database.completed += 1
        self._kept = [*self._kept, made]
        if prune:
            self._prune(settings.max_retained)
        self._tell()
        self._engine.uploads.wake()
        return made

    def _prune(self, keep: int) -> None:
        """Removes older checkpoints. While contents are damaged, the newest one that has all of them whole stays: there is no other way back."""
        store = self._engine.storage.checkpoints
        self._spared = store.spared(keep)
        store.prune(keep, None if self._spared is None else self._spared.id)
        self._kept = self._kept[-keep:]

    def _tell(self) -> None:
        """Tells the running jobs up to where they will not go back."""
        jobs, log = self._engine.jobs, self._engine.log
        usable = [m for m in self._kept if not log.abandoned(m.lsn)]
        for beginning in jobs.beginnings():
            key = jobs.recovery.key(beginning.folder)
            saved = [m.jobs.get(key) for m in usable]
            same = [s for s in saved if s is not None and s.base == beginning.base]
            # Of one that is missing from a checkpoint, that checkpoint keeps nothing.
            if same and (job := jobs.running_in(beginning)) is not None:
                job.kernel.durable(Reached(min(s.lsn for s in same), min(s.roster for s in same)))


def _positions(jobs: Mapping[str, SavedJob]) -> dict[str, tuple[int, int, int]]:
    return {k: (j.base, j.lsn, j.roster) for k, j in jobs.items()}
