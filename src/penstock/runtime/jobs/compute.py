"""The JVM side of an open database. It becomes useless when the JVM exits, and is rebuilt from the storage."""

from __future__ import annotations

import uuid
from contextlib import ExitStack, suppress

from penstock.errors import PenstockError
from penstock.runtime.storage.storage import NoIndex, Storage
from penstock.spark.batch import BatchReader
from penstock.spark.bridge import FolderClaim
from penstock.spark.compile import UNIT_OBJECT
from penstock.spark.index import KernelIndex
from penstock.spark.sameness import Sameness
from penstock.spark.seeds import unit_entry
from penstock.spark.session import database_session


class Compute:
    """A Spark session, the JVM's lock on the folder, and the kernel's index of the log."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.uid = uuid.uuid4().hex[:8]
        with ExitStack() as undo:
            self.spark = database_session(storage.settings)
            self._claim = FolderClaim(storage.layout.root / "jvm.lock")
            undo.callback(self._claim.release)
            self.index = KernelIndex(self.uid)
            undo.callback(self.index.close)
            self.batch = BatchReader(self.spark, programs=storage.settings.security.allow_programs)
            self.sameness = Sameness(self.spark)
            self.parallelism = int(self.spark.sparkContext.defaultParallelism)
            self.local = bool(self.spark.sparkContext._jsc.isLocal())
            self._load()
            undo.pop_all()

    def _load(self) -> None:
        """Loads the log's entries into the kernel. No commit may happen during the call."""
        log = self._storage.log
        self.index.add([unit_entry(self._storage.layout.unit)], 1)
        for object_id in log.object_ids():
            watermark = log.watermark(object_id)
            if watermark is not None and log.last_entry(object_id) is None:
                self.index.trimmed(object_id, watermark)
            if object_id != UNIT_OBJECT:
                self.index.add(log.iterate(object_id), log.head)
        self.index.add([], log.head)
        self._storage.index = self.index

    def close(self) -> None:
        """Releases all resources of the JVM; does nothing if it has exited."""
        self._storage.index = NoIndex()
        with suppress(PenstockError):
            self.index.close()
        with suppress(PenstockError):
            self._claim.release()
