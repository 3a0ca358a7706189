"""Verifies the log, the contents on disk and the snapshots in the background, so that damage is found before somebody needs the rows."""

from __future__ import annotations

import logging

from penstock.catalog.objects import Kind
from penstock.errors import PenstockError
from penstock.log.maps import map_file
from penstock.runtime.storage.storage import Storage
from penstock.serve.sealed import unsealed

_logger = logging.getLogger(__name__)

_PAGE = 500


class Scrub:
    """Goes through the rows of one object after the other, again and again. One thread."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._object = 0
        self._after = 0
        self._seen: dict[int, PenstockError] = {}
        # The file of contents that is being verified: the object, the name of the file, and the next block.
        self._file = (0, "", 0)
        # The last object whose snapshot was verified.
        self._snapshot = 0
        self.findings: dict[int, PenstockError] = {}
        """Objects with damaged rows, and where. One that is sound again is found so when its turn comes."""

    def step(self, budget: int) -> None:
        """Verifies about so many bytes of the log, as many of contents, and as many of snapshots; at most all that there is."""
        self._contents_step(budget)
        self._snapshots_step(budget)
        log = self._storage.log
        turns = len(log.object_ids()) + 1
        while budget > 0 and turns > 0:
            page = log.entries(self._object, after=self._after, limit=_PAGE)
            for entry in page:
                if entry.rows and (error := log.check(entry)) is not None:
                    self._seen[self._object] = self.findings[self._object] = error
                self._after = entry.lsn
                budget -= entry.length
                if budget <= 0:
                    return
            if len(page) < _PAGE:
                self._next()
                turns -= 1

    def _contents_step(self, budget: int) -> None:
        """Goes on with the files of contents. What is found damaged is not read again, in this process or the next."""
        found = self._storage.store.on_disk()
        files = sorted(((i, s.path.name, s) for i, c in found.items() for s in c.segments), key=lambda f: f[:2])
        for object_id, name, segment in files:
            # A file that was merged meanwhile is left out; the one that took its place has a turn of its own.
            if (object_id, name) < self._file[:2]:
                continue
            at = self._file[2] if self._file[:2] == (object_id, name) else 0
            try:
                at, done = segment.verify(at, budget)
            except PenstockError as error:
                self._storage.store.found_damaged(object_id, error)
                continue
            self._file = (object_id, name, at)
            budget -= done
            if budget <= 0:
                return
        self._file = (0, "", 0)

    def _snapshots_step(self, budget: int) -> None:
        """Goes on with the snapshots of objects in memory. A damaged one is written again, before a checkpoint takes it for whole."""
        storage = self._storage
        infos = storage.catalog.objects(Kind.TABLE, Kind.LOOKUP, Kind.VIEW)
        for info in sorted((i for i in infos if i.id > self._snapshot), key=lambda i: i.id):
            self._snapshot = info.id
            path = storage.layout.snapshot(info.id)
            if info.id in storage.damage or not path.exists():
                continue
            try:
                data = map_file(str(path))
                unsealed(data)
                budget -= data.size
            except FileNotFoundError:
                continue  # The object was dropped, or has gone to disk.
            except ValueError as why:
                _logger.warning("%s is damaged (%s) and is written again", path, why)
                try:
                    storage.save(info)
                except PenstockError as error:
                    _logger.error("%s could not be written again: %s", path, error.detail)
            if budget <= 0:
                return
        self._snapshot = 0

    def _next(self) -> None:
        if self._object not in self._seen:
            self.findings.pop(self._object, None)
        ids = self._storage.log.object_ids()
        self._object = next((i for i in ids if i > self._object), 0)
        self._after = 0
        self._seen.pop(self._object, None)
        for gone in [i for i in self.findings if i not in ids]:
            del self.findings[gone]
