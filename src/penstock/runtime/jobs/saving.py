"""Saves a whole database as a checkpoint, while it runs or not."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from penstock.catalog.objects import Kind, ObjectInfo
from penstock.checkpoint import StreamCheckpoint
from penstock.errors import PenstockError, fail
from penstock.log import Pinned
from penstock.log.state import ObjectState
from penstock.runtime.jobs.saved import LEDGER, Saved, capture
from penstock.runtime.storage.checkpoints import CATALOG, LOG, CheckpointDraft, Manifest, SavedJob, SavedSink
from penstock.runtime.storage.contents import complete
from penstock.runtime.storage.position import position_of
from penstock.runtime.storage.storage import Storage
from penstock.serve.ondisk import MANIFEST as CONTENTS
from penstock.serve.ondisk import files_of

_ATTEMPTS = 5

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Captured:
    """A job as it was at some moment, and its generation."""

    base: int
    saved: Saved

    @property
    def job(self) -> SavedJob:
        reached = self.saved.reached
        return SavedJob(self.base, reached.lsn, reached.roster, dict.fromkeys(self.saved.large, (0, 0)))


def folders(storage: Storage) -> dict[str, int]:
    """The folders of all jobs, relative to the database, with their generations."""
    catalog, layout = storage.catalog, storage.layout
    hosted = dict(catalog.hosted)
    shared = {i for h in hosted.values() for i in h.members}
    own = [o.id for o in catalog.objects(Kind.STREAM, Kind.VIEW) if o.id not in shared]
    found = {layout.job(i): catalog.solo[i].base if i in catalog.solo else 0 for i in own}
    found |= {layout.hosted(key, h.number): 0 for key, h in hosted.items()}
    return {path.relative_to(layout.root).as_posix(): base for path, base in found.items()}


def capture_all(storage: Storage) -> dict[str, Captured]:
    """Every job that has begun, each at its own position: jobs go on meanwhile."""
    found = {}
    for key, base in folders(storage).items():
        saved = capture(storage.layout.root / key)
        if saved is not None:
            found[key] = Captured(base, saved)
    now = folders(storage)
    # A job that has begun again meanwhile is not what was captured.
    return {key: c for key, c in found.items() if now.get(key) == c.base}


@dataclass(frozen=True)
class Linked:
    """A checkpoint of which all files are linked, and that is not complete yet. From here on objects may change."""

    draft: CheckpointDraft
    body: StreamCheckpoint
    jobs: Mapping[str, SavedJob]
    lsn: int
    catalog: int
    sinks: Mapping[str, SavedSink]
    plans: Mapping[str, str]
    damaged: tuple[str, ...]
    begun: float
    undo: ExitStack

    def complete(self, until: float | None = None) -> Manifest:
        """Sums, syncs and names it. Raises PSK-7004, PSK-6014 if that takes longer than until a time of the monotonic clock; then nothing is left of it."""
        with self.undo:
            return self.draft.complete(
                self.body,
                self.jobs,
                lsn=self.lsn,
                catalog=self.catalog,
                begun=self.begun,
                until=until,
                sinks=self.sinks,
                plans=self.plans,
                damaged=self.damaged,
            )


def save(storage: Storage, jobs: Mapping[str, Captured]) -> Manifest:
    """Makes a checkpoint of a database with jobs that were captured before. Raises PSK-7004."""
    return link(storage, jobs).complete()


def link(storage: Storage, jobs: Mapping[str, Captured], failing: Collection[int] = ()) -> Linked:
    """Begins a checkpoint of the database with jobs that were captured before. No statement may change objects during the call, which is quick. Raises PSK-7004, PSK-6001 if a file of the database is gone.

    `failing` are the sinks that cannot deliver now.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return _begin(storage, jobs, failing)
        except FileNotFoundError as why:
            if attempt == _ATTEMPTS - 1:
                raise fail(
                    "PSK-6001",
                    f"{why.filename} is missing: no checkpoint can be made of this database.",
                    hint="Restore the file from a backup, or go back to an earlier checkpoint: RESTORE FROM CHECKPOINT n WITH (backup = 'false').",
                ) from why
            # Spark has removed a file since its job was captured.
            jobs = capture_all(storage)
    raise AssertionError


def _begin(storage: Storage, jobs: Mapping[str, Captured], failing: Collection[int]) -> Linked:
    begun = time.monotonic()
    # What the jobs have recorded, and what they have read, must be on disk before the checkpoint is.
    storage.log.sync()
    with ExitStack() as undo:
        draft = undo.enter_context(storage.checkpoints.draft(storage.checkpoints.next_id()))
        with storage.pinned() as pinned:
            damaged = _link(storage, draft, pinned)
            for key, captured in jobs.items():
                for name, path in captured.saved.large.items():
                    draft.add(f"{key}/{name}", path)
            body = _body(storage, draft.id, pinned, jobs)
            sinks = _sinks(storage, pinned, failing)
        names = {o.id: o.name for o in storage.catalog.objects()}
        return Linked(
            draft,
            body,
            {key: captured.job for key, captured in jobs.items()},
            lsn=pinned.head,
            catalog=storage.catalog.serial,
            sinks=sinks,
            plans={names[i]: plan for i, plan in storage.catalog.plans.items() if i in names},
            damaged=tuple(damaged),
            begun=begun,
            undo=undo.pop_all(),
        )


def _link(storage: Storage, draft: CheckpointDraft, pinned: Pinned) -> list[str]:
    """Returns the objects whose contents are left out, because they are damaged."""
    layout = storage.layout
    if not layout.catalog.exists():
        storage.catalog.save()
    draft.put(CATALOG, layout.catalog.read_bytes())
    draft.put(f"{LOG}/floors.json", pinned.floors)
    for path, size in pinned.segments:
        draft.add(f"{LOG}/{path.name}", path, size, grows=path == pinned.segments[-1][0])
    damaged = []
    for info in storage.catalog.objects():
        if info.has_contents:
            found = None if info.id in storage.damage else _contents(storage, info)
            if found is None:
                damaged.append(info.name)
            for file, listed in (found or {}).items():
                name = file.relative_to(layout.root).as_posix()
                draft.add(name, file) if listed is None else draft.put(name, listed)
    # A member of a shared job has a folder for what it began with, and a sink one for its position.
    for folder in {*folders(storage), *(f"jobs/{o.id}" for o in storage.catalog.objects())}:
        for path in _begun_with(layout.root / folder):
            draft.add(path.relative_to(layout.root).as_posix(), path)
    return damaged


def _contents(storage: Storage, info: ObjectInfo) -> dict[Path, bytes | None] | None:
    """The files of the contents of an object; with their bytes those that may be replaced. Raises FileNotFoundError or PSK-6001 if one is gone or damaged that was whole
    when the object was attached; None in a database that is not open."""
    snapshot, place = storage.layout.snapshot(info.id), storage.layout.contents(info.id)
    found: dict[Path, bytes | None] = {}
    try:
        if (place / CONTENTS).exists():
            listed = (place / CONTENTS).read_bytes()
            found = {place / CONTENTS: listed} | dict.fromkeys(place / name for name in files_of(listed, place))
        if snapshot.exists():
            found[snapshot] = None
        gone = [path for path in found if not path.is_file()]
        if gone or not (found or complete(storage.log, info.id)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str([*gone, snapshot][0]))
    except (FileNotFoundError, PenstockError) as why:
        if storage.find(info.id) is not None:
            raise
        _logger.warning("the checkpoint is without the contents of %s: %s", info.name, why)
        return None
    return found


def _begun_with(folder: Path) -> list[Path]:
    """What a job began with, and the position of a sink: the files beside the checkpoint of a job."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.is_file() and p.name != LEDGER and p.suffix != ".tmp")


def _body(storage: Storage, id: int, pinned: Pinned, jobs: Mapping[str, Captured]) -> StreamCheckpoint:
    catalog = storage.catalog
    sources = [o for o in catalog.objects(Kind.SOURCE, Kind.TABLE, Kind.LOOKUP) if o.id in pinned.states]
    states = {o.name: pinned.states[o.id] for o in sources}
    return StreamCheckpoint(
        id=id,
        epoch=pinned.head,
        source_sequences={name: s.epoch for name, s in states.items()},
        sink_positions={o.name: position_of(storage.layout, o).lsn for o in catalog.objects(Kind.SINK)},
        watermarks={name: s.watermark for name, s in states.items() if s.watermark is not None},
        operator_states={key: captured.saved.small for key, captured in jobs.items()},
        created_at=int(time.time() * 1000),
    )


def _sinks(storage: Storage, pinned: Pinned, failing: Collection[int]) -> dict[str, SavedSink]:
    found = {}
    for info in storage.catalog.objects(Kind.SINK):
        epoch = position_of(storage.layout, info).epoch
        fed = pinned.states.get(info.depends_on[0], ObjectState())
        status = "failed" if info.id in failing else "pending" if epoch < fed.row_epoch else "committed"
        found[info.name] = SavedSink(epoch, fed.epoch, status)
    return found
