"""Takes a database without its JVM back to a checkpoint: what of it and how is decided here, files are moved by `storage.restoring`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from penstock.catalog.file import read_catalog
from penstock.catalog.objects import Kind, ObjectInfo
from penstock.connect import Access, make_sink
from penstock.errors import PenstockError, fail
from penstock.log import Log
from penstock.log.floors import Abandoned
from penstock.runtime.jobs.remote import identity, remote
from penstock.runtime.jobs.saved import put_back
from penstock.runtime.storage.checkpoints import CATALOG, CheckpointStore, Manifest
from penstock.runtime.storage.layout import Layout
from penstock.runtime.storage.position import Position, position_file, position_of
from penstock.runtime.storage.restoring import Prepared, Present, decide, discard, prepare
from penstock.runtime.storage.storage import Storage


@dataclass(frozen=True)
class Restoration:
    """What will be restored. `kept` are the sinks whose targets keep what was delivered since the checkpoint."""

    manifest: Manifest
    kept: frozenset[int]


def fetch_missing(storage: Storage, id: int) -> None:
    """Gets a checkpoint that is no longer kept here from where the database has uploaded it to. Nobody else makes or removes checkpoints meanwhile. Raises PSK-6008, PSK-6009, PSK-7004."""
    store, url = storage.checkpoints, storage.settings.checkpoint.url
    if url and id not in store.ids():
        there = remote(url, storage.layout.root)
        if there.is_of(identity(store.folder)) and id in there.ids():
            there.fetch_into(store, id)


def planned(storage: Storage, id: int, access: Access, *, keep_delivered: bool) -> Restoration:
    """Reads all of a checkpoint. Raises PSK-6005 if there is none, PSK-6001 if it is damaged, PSK-6006 if it has jobs alone, PSK-5022 for sinks that cannot take back what
    they have delivered since, unless that is kept."""
    store = storage.checkpoints
    if id not in store.ids():
        known = ", ".join(map(str, store.ids())) or "none"
        raise fail("PSK-6005", f"There is no checkpoint {id}. Kept are: {known}.")
    manifest = store.verify(id)
    if not manifest.whole:
        raise fail("PSK-6006", f"Checkpoint {id} was made by an earlier version, which saved queries alone.")
    content = read_catalog(store.path(id) / CATALOG)
    assert content is not None
    unable = {o.id: o for o in content.objects if o.kind is Kind.SINK and _owes(storage, o, manifest, access)}
    if unable and not keep_delivered:
        names = ", ".join(o.name for o in unable.values())
        raise fail("PSK-5022", f"What was delivered since checkpoint {id} cannot be taken back by: {names}.")
    return Restoration(manifest, frozenset(unable))


def _owes(storage: Storage, info: ObjectInfo, manifest: Manifest, access: Access) -> bool:
    """Whether a sink may have delivered rows since a checkpoint that it cannot take back."""
    if storage.catalog.has_id(info.id):
        if position_of(storage.layout, info).committed <= manifest.sinks[info.name].newest:
            return False
    elif manifest.lsn == storage.log.head:
        return False
    assert info.connector is not None
    try:
        sink = make_sink(info.connector, changelog=info.changelog, access=access)
    except PenstockError:
        return True
    return not sink.capabilities.takes_back


def prepared(storage: Storage, restoration: Restoration) -> Prepared:
    """Makes the restored database beside the present one, which accepts no commits any more."""
    store, manifest = storage.checkpoints, restoration.manifest
    with storage.pinned() as pinned:
        present = Present(
            pinned.head,
            {i: s.epoch for i, s in pinned.states.items()},
            storage.catalog.new_id(),
            storage.catalog.serial,
        )
    try:
        made = prepare(storage.layout.root, store, manifest, present)
        put_back_all(store, manifest, made)
        sinks = [o for o in made.content.objects if o.kind is Kind.SINK]
        if sinks:
            _place(storage, sinks, made, pinned.abandoned, restoration.kept)
    except BaseException:
        discard(storage.layout.root)
        raise
    return made


def put_back_all(store: CheckpointStore, manifest: Manifest, made: Prepared) -> None:
    """Makes the files of the jobs of a checkpoint."""
    body = store.body(manifest)
    for key in manifest.jobs:
        put_back(made.root / key, body.operator_states[key], store.large(manifest, key))


def _place(
    storage: Storage, sinks: Sequence[ObjectInfo], made: Prepared, before: Sequence[Abandoned], kept: Collection[int]
) -> None:
    """Where sinks go on: what one has delivered of the history that both databases share stays, and the rest is taken back when it is opened. `before`: what earlier restores have taken back from the present one."""
    log = Log.open(made.root)
    try:
        with log.pinned() as pinned:
            own = pinned.abandoned[:-1]
        parted = [a for a in (*before, *own) if (a in before) != (a in own)]
        for info in sinks:
            target, stream = position_file(Layout(made.root), info), info.depends_on[0]
            # Checkpoints of earlier versions have no position of a sink that had delivered nothing.
            now = position_of(storage.layout if storage.catalog.has_id(info.id) else Layout(made.root), info)
            if stream not in made.abandoned.epochs:
                target.write(now)
                continue
            after, up_to = made.abandoned.epochs[stream]
            shared = min([after, *(a.epochs[stream][0] for a in parted if stream in a.epochs)])
            # Where the sink has delivered all that both have, and the restored one no more, it goes on with what is new.
            at = Position(up_to + 1, made.abandoned.up_to, now.committed)
            if info.id not in kept:
                if shared < after:
                    at = Position(shared, log.lsn_at_epoch(stream, shared))
                at = now if now.epoch < shared else at
                at = replace(at, committed=min(now.committed, shared), undo=(shared, up_to))
            target.write(at)
    finally:
        log.close()


def carried_out(storage: Storage, made: Prepared, restoration: Restoration) -> Callable[[], None]:
    """The step of `Storage.reopen` at which the database changes."""
    return lambda: decide(storage.layout.root, made, restoration.manifest)


__all__ = ["Restoration", "carried_out", "fetch_missing", "planned", "prepared", "put_back_all"]
