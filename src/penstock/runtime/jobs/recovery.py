"""What becomes of a job whose checkpoint is missing or damaged.

Spark's files are not synced, so a power cut may leave any of them behind empty, old or not at all. A job then goes on from a checkpoint that is on disk, or from
its beginning, and repeats its way through the log, which is kept for it. What it has recorded meanwhile is recognised and not recorded again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from penstock.disk import Witness
from penstock.errors import PenstockError
from penstock.runtime.jobs.saved import LEDGER, discard, put_back
from penstock.runtime.storage.storage import Storage
from penstock.spark.offsets import (
    check_ledger,
    epoch_in,
    numbered,
    offset_in,
    reached_in,
    recorded_file,
    recorded_in,
)

_logger = logging.getLogger(__name__)

_OF_THE_LOG = " rows of commit "
"""In what the kernel says of damaged rows."""


@dataclass(frozen=True)
class Beginning:
    """A job in a folder: its name, its generation, and for each object that it reads the LSN after which it does so from its beginning.

    Not `repeatable`: the same input does not lead to the same output.
    """

    name: str
    folder: Path
    base: int
    reads: Mapping[int, int]
    repeatable: bool = True


class Recovery:
    """Puts back the checkpoints of jobs that are not running."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def key(self, folder: Path) -> str:
        """The name of a job in a checkpoint."""
        return folder.relative_to(self._storage.layout.root).as_posix()

    def damage(self, folder: Path) -> str | None:
        """Why a checkpoint cannot be what the job goes on from, as far as its offsets tell; None if it can, or there is none."""
        key, doubtful = self.key(folder), self._storage.doubtful
        # Commits that the log has lost are not those that get their numbers now.
        head = self._storage.found if key in doubtful else self._storage.log.head
        found = self._damage(folder, head)
        if found is None:
            doubtful.discard(key)
        return found

    def _damage(self, folder: Path, head: int) -> str | None:
        checkpoint, ledger = folder / "checkpoint", folder / LEDGER
        try:
            if ledger.exists():
                check_ledger(ledger.read_bytes(), sealed=(folder / "sealed").exists())
        except (OSError, ValueError) as why:
            return f"{ledger}: {why or type(why).__name__}"
        try:
            if (checkpoint / "epoch").exists():
                epoch = epoch_in((checkpoint / "epoch").read_bytes())
                lsn, recorded = reached_in(epoch, done=True).lsn, recorded_in(epoch)
            elif offsets := numbered(checkpoint / "offsets"):
                UUID(json.loads((checkpoint / "metadata").read_bytes())["id"])
                offset = offset_in((checkpoint / "offsets" / str(offsets[-1])).read_bytes())
                if offset is None:
                    return f"{checkpoint / 'offsets' / str(offsets[-1])} has no offset"
                lsn, recorded = reached_in({"end": offset}, done=True).lsn, Witness(recorded_file(folder)).number
            else:
                return None
        except (OSError, ValueError, KeyError, TypeError) as why:
            return f"{checkpoint}: {why or type(why).__name__}"
        if lsn <= head < recorded:
            return f"{checkpoint} has recorded epochs up to LSN {recorded}, and the log ends with {head}"
        return f"{checkpoint} has read up to LSN {lsn}, and the log ends with {head}" if lsn > head else None

    def roll_back(self, job: Beginning, why: str, attempt: int = 0) -> bool:
        """Puts back the newest checkpoint that can be used or, for each earlier `attempt`, an older one, and last of all the beginning. False if there is nothing more to try."""
        if not job.repeatable:
            return False
        ways: Sequence[int | None] = [*reversed(self._storage.checkpoints.ids()), None]
        for way in ways[attempt:]:
            if self._back_to(job, way):
                self._storage.doubtful.discard(self.key(job.folder))
                place = "its beginning" if way is None else f"checkpoint {way}"
                _logger.warning("%s goes on from %s: %s", job.name, place, why)
                self._storage.totals.database.rolled_back += 1
                return True
        return False

    def mend(self, job: Beginning, error: PenstockError, attempt: int) -> bool:
        """The same for a job that has failed. If it is the log that is damaged, there is no way around it."""
        return _OF_THE_LOG not in error.detail and self.roll_back(job, error.detail, attempt)

    def saved(self, job: Beginning) -> bool:
        """Whether a checkpoint has the job: then it has begun, whatever its folder says."""
        for id in self._storage.checkpoints.ids():
            try:
                manifest = self._storage.checkpoints.manifest(id)
            except PenstockError:
                continue
            found = manifest.jobs.get(self.key(job.folder))
            if found is not None and found.base == job.base and not self._storage.log.abandoned(manifest.lsn):
                return True
        return False

    def _back_to(self, job: Beginning, id: int | None) -> bool:
        log, store, key = self._storage.log, self._storage.checkpoints, self.key(job.folder)
        if id is None:
            if not all(log.retains(o, after) for o, after in job.reads.items()):
                return False
            discard(job.folder)
            return True
        try:
            manifest = store.manifest(id)
            saved = manifest.jobs.get(key)
            if saved is None or saved.base != job.base or saved.lsn > log.head or log.abandoned(manifest.lsn):
                return False
            if not all(log.retains(o, max(saved.lsn, after)) for o, after in job.reads.items()):
                return False
            small, large = store.body(manifest).operator_states[key], store.large(manifest, key)
        except PenstockError as error:
            _logger.warning("checkpoint %d cannot be used: %s", id, error.detail)
            return False
        put_back(job.folder, small, large)
        return True
