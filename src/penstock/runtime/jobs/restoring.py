"""Takes a database without its JVM back to a checkpoint: what of it and how is decided here, files are moved by `storage.restoring`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """What will be restored. `kept` are the sinks whose targets keep what was delivered since the checkpoint, `undoing` those that can take it back; all others have delivered nothing since."""

    manifest: Manifest
    kept: frozenset[int]
    undoing: frozenset[int]


@dataclass(frozen=True)
class Before:
    """The database that is taken back. `log` are the number of its last commit and what earlier restores have taken back; None if the log cannot be read. `sinks` are those that it has."""

    layout: Layout
    checkpoints: CheckpointStore
    present: Present
    log: tuple[int, tuple[Abandoned, ...]] | None
    sinks: frozenset[int]

    @staticmethod
    def of(storage: Storage) -> Before:
        """An open one."""
        with storage.pinned() as pinned:
            epochs = {i: s.epoch for i, s in pinned.states.items()}
        catalog = storage.catalog
        present = Present(pinned.head, epochs, catalog.new_id(), catalog.serial)
        sinks = frozenset(o.id for o in catalog.objects(Kind.SINK))
        return Before(storage.layout, storage.checkpoints, present, (pinned.head, pinned.abandoned), sinks)

    def position(self, info: ObjectInfo) -> Position | None:
        """How far a sink has delivered, if that is known."""
        if info.id not in self.sinks:
            return None
        try:
            return position_file(self.layout, info).read()
        except PenstockError:
            return None


def fetch_missing(before: Layout, store: CheckpointStore, url: str | None, id: int) -> None:
    """Gets a checkpoint that is no longer kept here from where the database has uploaded it to. Nobody else makes or removes checkpoints meanwhile. Raises PSK-6008, PSK-6009, PSK-7004."""
    if url and id not in store.ids():
        there = remote(url, before.root)
        if there.is_of(identity(store.folder)) and id in there.ids():
            there.fetch_into(store, id)


def planned(before: Before, id: int, access: Access, *, keep_delivered: bool) -> Restoration:
    """Reads all of a checkpoint. Raises PSK-6005 if there is none, PSK-6001 if it is damaged, PSK-6006 if it has jobs alone, PSK-5022 for sinks that cannot take back what
    they have delivered since, unless that is kept."""
    store = before.checkpoints
    if id not in store.ids():
        known = ", ".join(map(str, store.ids())) or "none"
        raise fail("PSK-6005", f"There is no checkpoint {id}. Kept are: {known}.")
    manifest = store.verify(id)
    if not manifest.whole:
        raise fail("PSK-6006", f"Checkpoint {id} was made by an earlier version, which saved queries alone.")
    return settled(before, manifest, access, keep_delivered=keep_delivered)


def settled(before: Before, manifest: Manifest, access: Access, *, keep_delivered: bool) -> Restoration:
    """What becomes of the sinks. In a database that is open it is asked again when nothing is delivered any more. Raises PSK-5022."""
    content = read_catalog(before.checkpoints.path(manifest.id) / CATALOG)
    assert content is not None
    sinks = [o for o in content.objects if o.kind is Kind.SINK]
    undoing = frozenset(o.id for o in sinks if _takes_back(o, access))
    unable = {o.id: o for o in sinks if o.id not in undoing and _has_delivered(before, o, manifest)}
    if unable and not keep_delivered:
        names = ", ".join(o.name for o in unable.values())
        raise fail("PSK-5022", f"What was delivered since checkpoint {manifest.id} cannot be taken back by: {names}.")
    return Restoration(manifest, frozenset(unable), undoing)


def _has_delivered(before: Before, info: ObjectInfo, manifest: Manifest) -> bool:
    """Whether a sink may have delivered rows since a checkpoint."""
    at = before.position(info)
    if at is not None and at.committed <= manifest.sinks[info.name].newest:
        return False
    return before.log is None or manifest.lsn != before.log[0]


def _takes_back(info: ObjectInfo, access: Access) -> bool:
    assert info.connector is not None
    try:
        return make_sink(info.connector, changelog=info.changelog, access=access).capabilities.takes_back
    except PenstockError:
        return False


def prepared(before: Before, restoration: Restoration) -> Prepared:
    """Makes the restored database beside the present one, which accepts no commits any more."""
    store, manifest, root = before.checkpoints, restoration.manifest, before.layout.root
    try:
        made = prepare(root, store, manifest, before.present)
        put_back_all(store, manifest, made)
        sinks = [o for o in made.content.objects if o.kind is Kind.SINK]
        if sinks:
            _place(before, sinks, made, restoration)
    except BaseException:
        discard(root)
        raise
    return made


def put_back_all(store: CheckpointStore, manifest: Manifest, made: Prepared) -> None:
    """Makes the files of the jobs of a checkpoint."""
    body = store.body(manifest)
    for key in manifest.jobs:
        put_back(made.root / key, body.operator_states[key], store.large(manifest, key))


def _place(before: Before, sinks: Sequence[ObjectInfo], made: Prepared, restoration: Restoration) -> None:
    """Where sinks go on: what one has delivered of the history that both databases share stays, and the rest is taken back when it is opened."""
    log = Log.open(made.root)
    try:
        with log.pinned() as pinned:
            own = pinned.abandoned[:-1]
        # What earlier restores have taken back from the present one. If that is unknown, it shares with the restored one what that has.
        earlier = before.log[1] if before.log is not None else own
        parted = [a for a in (*earlier, *own) if (a in earlier) != (a in own)]
        for info in sinks:
            target, stream = position_file(Layout(made.root), info), info.depends_on[0]
            # Checkpoints of earlier versions have no position of a sink that had delivered nothing.
            now = before.position(info) or position_of(Layout(made.root), info)
            if stream not in made.abandoned.epochs:
                target.write(now)
                continue
            after, up_to = made.abandoned.epochs[stream]
            shared = min([after, *(a.epochs[stream][0] for a in parted if stream in a.epochs)])
            # Where the sink has delivered all that both have, and the restored one no more, it goes on with what is new.
            at = Position(up_to + 1, made.abandoned.up_to, now.committed)
            if info.id not in restoration.kept:
                if shared < after:
                    at = Position(shared, log.lsn_at_epoch(stream, shared))
                at = now if now.epoch < shared else at
                undo = (shared, up_to) if info.id in restoration.undoing else None
                at = replace(at, committed=min(now.committed, shared), undo=undo)
            target.write(at)
    finally:
        log.close()


def carried_out(before: Before, made: Prepared, restoration: Restoration) -> Callable[[], None]:
    """The step of `Storage.reopen` at which the database changes."""
    return lambda: decide(before.layout.root, made, restoration.manifest)


__all__ = ["Before", "Restoration", "carried_out", "fetch_missing", "planned", "prepared", "put_back_all", "settled"]
