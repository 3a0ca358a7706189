"""Savepoints: checkpoints outside of the database folder, in a folder or an object store, from which a database can be made elsewhere."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from penstock.catalog.file import read_catalog
from penstock.disk import make_folder
from penstock.errors import fail
from penstock.runtime.jobs.place import Place
from penstock.runtime.jobs.remote import RemoteCheckpoints
from penstock.runtime.jobs.restoring import put_back_all
from penstock.runtime.storage.checkpoints import CATALOG, MANIFEST, CheckpointStore, Manifest, listed
from penstock.runtime.storage.format import write_format
from penstock.runtime.storage.layout import Layout
from penstock.runtime.storage.restoring import Present, decide, finish, prepare


def export_checkpoint(store: CheckpointStore, id: int, url: str) -> Manifest:
    """Copies a checkpoint to an empty place. Everything is compared with its checksums while and after it is written; the manifest comes last. The checkpoint may be pruned meanwhile.

    Raises PSK-6005 if there is none, PSK-6001 if it is damaged, PSK-6006 if it has jobs alone, PSK-6008 if the place cannot be used."""
    with store.lent(id) as (folder, manifest):
        if not manifest.whole:
            raise fail("PSK-6006", f"Checkpoint {id} was made by an earlier version, which saved queries alone.")
        place = Place(url)
        if place.has(MANIFEST):
            raise fail("PSK-6008", f"{place.url} has a savepoint already.")
        if RemoteCheckpoints(place).ids():
            raise fail("PSK-6008", f"{place.url} has the checkpoints of a database.")
        for name, (size, crc) in listed(manifest).items():
            if place.write(name, folder / name, size) != crc:
                raise fail("PSK-6001", f"{store.path(id) / name} is damaged: its checksum does not match.")
            if place.read(name, None) != (size, crc):
                raise fail("PSK-6009", f"{place.url}/{name} is not what was written: its checksum does not match.")
        place.write(MANIFEST, folder / MANIFEST, (folder / MANIFEST).stat().st_size)
        return manifest


def import_checkpoint(url: str, folder: Path, id: int | None = None) -> Manifest:
    """Makes a database from a savepoint, or from a checkpoint that a database has uploaded, the newest without `id`; in a folder that does not exist or is empty. Everything is compared
    with its checksums. Sinks go on where they were; only one of both databases may deliver."""
    layout = Layout(folder.absolute())
    if layout.root.exists() and any(layout.root.iterdir()):
        raise fail("PSK-6008", f"{folder} is not empty.")
    place, store = Place(url), CheckpointStore(layout.checkpoints)
    incoming = layout.checkpoints / "0"
    make_folder(incoming)
    try:
        _fetch(place, id, store, incoming)
        manifest = replace(store.manifest(0), id=0)
        content = read_catalog(incoming / CATALOG)
        serial = content.serial if content is not None else 0
        made = prepare(layout.root, store, manifest, Present(manifest.lsn, {}, 1, serial))
        put_back_all(store, manifest, made)
        decide(layout.root, made, manifest)
        finish(layout.root)
        write_format(layout.root, manifest.folder)
    finally:
        shutil.rmtree(incoming, ignore_errors=True)
    return manifest


def _fetch(place: Place, id: int | None, store: CheckpointStore, incoming: Path) -> None:
    uploaded = RemoteCheckpoints(place)
    ids = uploaded.ids()
    if ids or id is not None:
        uploaded.fetch(id if id is not None else ids[-1], incoming)
        return
    place.read(MANIFEST, incoming / MANIFEST)
    for name, known in listed(store.manifest(0)).items():
        target = incoming / name
        make_folder(target.parent)
        if place.read(name, target) != known:
            raise fail("PSK-6009", f"{place.url}/{name} is damaged: its checksum does not match.")
