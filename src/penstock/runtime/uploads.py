"""Copies completed checkpoints to the place that `checkpoint.url` names."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from penstock.config.settings import CheckpointSettings
from penstock.errors import PenstockError, fail
from penstock.runtime.jobs.remote import identity, remote
from penstock.runtime.lifecycle import wait_s
from penstock.runtime.storage.checkpoints import CheckpointStore
from penstock.runtime.storage.storage import Storage

_logger = logging.getLogger(__name__)


class Counted(Protocol):
    """Who counts uploads."""

    uploaded: int
    upload_failed: int


class _Stopped(Exception):
    """The database is closed."""


class Uploads:
    """A thread that uploads the newest checkpoint. One that takes longer than the next checkpoint delays nobody: those in between are left out. A failure is in `error`, and is tried again after a
    while, 0.2 s to 30 s, with whichever checkpoint is the newest then; nothing else waits for it."""

    def __init__(
        self,
        root: Path,
        store: CheckpointStore,
        settings: Callable[[], CheckpointSettings],
        counts: Callable[[], Counted],
        *,
        temporary: bool = False,
    ) -> None:
        self._root = root
        self._store = store
        self._settings = settings
        self._counts = counts
        self._temporary = temporary
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._stopping = False
        self._failures = 0
        self.error: PenstockError | None = None
        """Why the last attempt failed."""
        self.last: int | None = None
        """The newest checkpoint that is there, as far as this process knows."""
        self.there: frozenset[int] = frozenset()
        """All of them."""

    @staticmethod
    def of(storage: Storage, *, temporary: bool) -> Uploads:
        """The uploads of a database, whose settings and counts may become others."""
        return Uploads(
            storage.layout.root,
            storage.checkpoints,
            lambda: storage.settings.checkpoint,
            lambda: storage.totals.database,
            temporary=temporary,
        )

    @property
    def enabled(self) -> bool:
        return bool(self._settings().url) and not self._temporary

    def wake(self) -> None:
        """There may be a checkpoint to upload."""
        if not self.enabled:
            return
        with self._changed:
            if self._thread is None and not self._stopping:
                self._thread = threading.Thread(target=self._run, name="penstock-uploads", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self, timeout: float) -> None:
        """Waits for the newest checkpoint to be uploaded, unless the last attempt failed; the next open uploads what is missing."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while self._thread is not None and self._behind() and self.error is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            if self._thread is not None and self._behind():
                _logger.warning("the newest checkpoint was not uploaded to %s", self._settings().url.partition("?")[0])
            self._stopping = True
            self._changed.notify_all()

    def _behind(self) -> bool:
        try:
            ids = self._store.ids()
        except PenstockError:
            return True  # The upload says why.
        return bool(ids) and (self.last is None or self.last < ids[-1])

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._stopping and not self._behind():
                    self._changed.wait()
                if self._failures and not self._stopping:
                    # A new checkpoint is no reason to try earlier.
                    self._changed.wait_for(lambda: self._stopping, wait_s(self._failures))
                if self._stopping:
                    return
            try:
                self._upload()
            except _Stopped:
                return
            except Exception as why:
                self._failed(
                    why if isinstance(why, PenstockError) else fail("PSK-8001", f"{type(why).__name__}: {why}")
                )

    def _upload(self) -> None:
        place = remote(self._settings().url, self._root, self._go_on)
        id = self._store.ids()[-1]
        if place.upload(self._store, id, identity(self._store.folder)):
            self._counts().uploaded += 1
            _logger.info("checkpoint %d was uploaded to %s", id, place.place.url)
        keep = self._settings().max_retained
        spared = self._store.spared(keep)
        gone = place.prune(keep, None if spared is None else spared.id)
        with self._changed:
            self.there = frozenset(place.ids()) - frozenset(gone)
            self.last, self.error, self._failures = id, None, 0
            self._changed.notify_all()

    def _go_on(self) -> None:
        if self._stopping:
            raise _Stopped

    def _failed(self, why: PenstockError) -> None:
        if why.code == "PSK-6005":
            return  # It was pruned; there is a newer one.
        self._counts().upload_failed += 1
        with self._changed:
            if self.error is None or self.error.detail != why.detail:
                _logger.warning("a checkpoint was not uploaded, and is tried again: %s", why)
            self.error = why
            self._failures += 1
            self._changed.notify_all()


__all__ = ["Uploads"]
