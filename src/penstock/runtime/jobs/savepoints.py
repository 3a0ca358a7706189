"""Savepoints: checkpoints outside of the database folder, in a folder or an object store, from which a database can be made elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from penstock.catalog.file import read_catalog
from penstock.disk import LOCK, FolderLock, make_folder, sync_file, write_durably
from penstock.errors import PenstockError, fail
from penstock.runtime.jobs.place import Place
from penstock.runtime.jobs.remote import RemoteCheckpoints, place_outside
from penstock.runtime.jobs.restoring import put_back_all
from penstock.runtime.storage.checkpoints import (
    CATALOG,
    INCOMING,
    MANIFEST,
    CheckpointStore,
    Manifest,
    listed,
    read_manifest,
)
from penstock.runtime.storage.layout import Layout, remove
from penstock.runtime.storage.restoring import IMPORT, Present, decide, decided, finish, prepare

_UNFINISHED = "unfinished"
"""A file beside a savepoint that is being written."""


def export_checkpoint(store: CheckpointStore, id: int, url: str) -> Manifest:
    """Copies a checkpoint to an empty place. Everything is compared with its checksums while and after it is written; the manifest comes last. The checkpoint may be pruned meanwhile.

    Raises PSK-6005 if there is none, PSK-6001 if it is damaged, PSK-6006 if it has jobs alone, PSK-6008 if the place cannot be used."""
    with store.lent(id) as (folder, manifest):
        if not manifest.whole:
            raise fail("PSK-6006", f"Checkpoint {id} was made by an earlier version, which saved queries alone.")
        place = place_outside(url, store.folder.parent)
        with _claimed(place) as check_alone:
            for name, (size, crc) in listed(manifest).items():
                check_alone()
                if place.write(name, folder / name, size) != crc:
                    raise fail("PSK-6001", f"{store.path(id) / name} is damaged: its checksum does not match.")
                if place.read(name, None) != (size, crc):
                    raise fail("PSK-6009", f"{place.url}/{name} is not what was written: its checksum does not match.")
            check_alone()
            place.write(MANIFEST, folder / MANIFEST, (folder / MANIFEST).stat().st_size)
            place.remove(_UNFINISHED)
        return manifest


@contextmanager
def _claimed(place: Place) -> Iterator[Callable[[], None]]:
    """Nobody else exports to a place within the block. A folder is locked; in an object store the last one to begin goes on, and the function raises PSK-6008 for the others.

    What an export that was interrupted has left is written again."""
    _check_free(place)
    if place.folder is None:
        own = uuid4().hex.encode()
        place.put(_UNFINISHED, own)

        def check_alone() -> None:
            if place.get(_UNFINISHED) != own:
                raise fail("PSK-6008", f"Another export to {place.url} has begun.")

        yield check_alone
        return
    lock = FolderLock(place.folder, _UNFINISHED)
    try:
        lock.acquire()
        sync_file(place.folder / _UNFINISHED)
    except PenstockError as why:
        lock.release()
        busy = why.code == "PSK-0005"
        raise fail("PSK-6008", f"Another export writes to {place.url}." if busy else why.detail) from why
    try:
        # It may have ended meanwhile.
        _check_free(place)
        yield lambda: None
    finally:
        lock.release()


def _check_free(place: Place) -> None:
    if place.has(MANIFEST):
        raise fail("PSK-6008", f"{place.url} has a savepoint already.")
    if RemoteCheckpoints(place).ids():
        raise fail("PSK-6008", f"{place.url} has the checkpoints of a database.")
    if not place.has(_UNFINISHED) and place.sizes(""):
        raise fail("PSK-6008", f"{place.url} has other files.")


def find_savepoint(url: str, *, verify: bool) -> Manifest | None:
    """The savepoint in a place; `verify` reads all of it. None if there is none; raises PSK-6001 or PSK-6009 if it is damaged."""
    place = Place(url)
    data = place.get(MANIFEST)
    if data is None:
        return None
    manifest = read_manifest(data, Path(place.url) / MANIFEST, "The savepoint cannot be used.")
    for name, known in listed(manifest).items() if verify else ():
        if not place.has(name):
            raise fail("PSK-6009", f"{place.url}/{name} is missing.")
        if place.read(name, None) != known:
            raise fail("PSK-6009", f"{place.url}/{name} is damaged: its checksum does not match.")
    return manifest


def import_checkpoint(url: str, folder: Path, id: int | None = None) -> Manifest:
    """Makes a database from a savepoint, or from a checkpoint that a database has uploaded, the newest without `id`; in a folder that does not exist or is empty. Everything is compared
    with its checksums. Sinks go on where they were; only one of both databases may deliver. If it fails, the folder is as it was."""
    root = folder.absolute()
    try:
        existed = root.exists()
        if existed and not root.is_dir():
            raise fail("PSK-6008", f"{folder} is not a folder.")
    except OSError as why:
        raise fail("PSK-6008", f"{folder} cannot be used: {why.strerror or why}.") from why
    lock = FolderLock(root)
    lock.acquire()
    try:
        found = [p for p in root.iterdir() if p.name != LOCK]
        if found and not _was_interrupted(root):
            raise fail("PSK-6008", f"{folder} is not empty.")
        try:
            return _import(Place(url), root, id)
        except BaseException:
            if not decided(root):
                _clear(root)
            raise
    finally:
        lock.release()
        if not existed and [p.name for p in root.iterdir()] == [LOCK]:
            shutil.rmtree(root, ignore_errors=True)


def _was_interrupted(root: Path) -> bool:
    return (root / IMPORT).exists() and not decided(root)


def _clear(root: Path) -> None:
    """The mark last: without it the rest would be an empty database."""
    for path in root.iterdir():
        if path.name not in (LOCK, IMPORT):
            remove(path)
    remove(root / IMPORT)


def _import(place: Place, root: Path, id: int | None) -> Manifest:
    _clear(root)
    write_durably(root / IMPORT, b"")
    layout = Layout(root)
    store = CheckpointStore(layout.checkpoints)
    incoming = store.path(INCOMING)
    make_folder(incoming)
    _fetch(place, id, store, incoming)
    found = store.manifest(INCOMING)
    manifest = replace(found, id=INCOMING)
    content = read_catalog(incoming / CATALOG)
    serial = content.serial if content is not None else 0
    made = prepare(root, store, manifest, Present(manifest.lsn, {}, 1, serial))
    put_back_all(store, manifest, made)
    decide(root, made, found)
    finish(root)
    shutil.rmtree(incoming, ignore_errors=True)
    return found


def _fetch(place: Place, id: int | None, store: CheckpointStore, incoming: Path) -> None:
    uploaded = RemoteCheckpoints(place)
    ids = uploaded.ids()
    if ids or id is not None:
        uploaded.fetch(id if id is not None else ids[-1], incoming)
        return
    if not place.has(MANIFEST):
        raise fail("PSK-6008", f"{place.url} has no savepoint, and no checkpoints of a database.")
    place.read(MANIFEST, incoming / MANIFEST)
    for name, known in listed(store.manifest(INCOMING)).items():
        target = incoming / name
        make_folder(target.parent)
        if not place.has(name):
            raise fail("PSK-6009", f"{place.url}/{name} is missing.")
        if place.read(name, target) != known:
            raise fail("PSK-6009", f"{place.url}/{name} is damaged: its checksum does not match.")
