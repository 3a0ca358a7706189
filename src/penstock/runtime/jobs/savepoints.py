"""Savepoints: checkpoints outside of the database folder, in a folder or an object store, from which a database can be made elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import google_crc32c
import pyarrow as pa
from pyarrow import fs

from penstock.catalog.file import read_catalog
from penstock.disk import make_folder, sync_file
from penstock.errors import PenstockError, fail
from penstock.runtime.jobs.restoring import put_back_all
from penstock.runtime.storage.checkpoints import BODY, CATALOG, MANIFEST, CheckpointStore, Manifest
from penstock.runtime.storage.format import write_format
from penstock.runtime.storage.layout import Layout
from penstock.runtime.storage.restoring import Present, decide, finish, prepare

_CHUNK = 8 << 20


def prefix_of(url: str) -> str:
    """The prefix of objects under a URL: nothing for file://, whose file system already begins there, and what follows the bucket otherwise, with a slash at its end."""
    _, scheme, rest = url.partition("://")
    if url.startswith("file://"):
        return ""
    _, slash, prefix = (rest if scheme else url).partition("/")
    if not slash or not prefix:
        return ""
    return prefix if prefix.endswith("/") else f"{prefix}/"


class Place:
    """A folder: a path, `file://…`, or `s3://bucket/prefix`. Raises PSK-6008 for anything else, and if it cannot be used."""

    def __init__(self, url: str) -> None:
        # Parameters, such as the endpoint, may be secrets, as may be what precedes the host.
        scheme, there, rest = url.partition("?")[0].partition("://")
        self.url = f"{scheme}://{rest.rpartition('@')[2]}" if there else url
        try:
            if not there:
                url = Path(url).absolute().as_uri()
            found, path = fs.FileSystem.from_uri(url)
            self._root = path
            if not url.startswith("file://"):
                self._root = f"{path.partition('/')[0]}/{prefix_of(self.url)}".rstrip("/")
        except (pa.ArrowException, OSError, ValueError) as why:
            raise _unusable(self.url, why) from why
        self._files = found

    def write(self, name: str, source: Path, size: int) -> int:
        """Copies the first bytes of a file; returns their checksum."""
        path, crc = f"{self._root}/{name}", 0
        try:
            self._files.create_dir(path.rpartition("/")[0], recursive=True)
            with source.open("rb") as data, self._files.open_output_stream(path) as out:
                for chunk in _chunks(data, size):
                    out.write(chunk)
                    crc = int(google_crc32c.extend(crc, chunk))
        except (pa.ArrowException, OSError) as why:
            raise _unusable(f"{self.url}/{name}", why) from why
        return crc

    def read(self, name: str, target: Path | None) -> tuple[int, int]:
        """Reads a file, and copies it to `target`; returns its size and checksum."""
        size = crc = 0
        try:
            with self._files.open_input_stream(f"{self._root}/{name}") as data:
                out = target.open("wb") if target is not None else None
                try:
                    while chunk := data.read(_CHUNK):
                        size, crc = size + len(chunk), int(google_crc32c.extend(crc, chunk))
                        if out is not None:
                            out.write(chunk)
                finally:
                    if out is not None:
                        out.close()
        except (pa.ArrowException, OSError) as why:
            raise _unusable(f"{self.url}/{name}", why) from why
        if target is not None:
            sync_file(target)
        return size, crc

    def taken(self) -> bool:
        try:
            found = self._files.get_file_info(f"{self._root}/{MANIFEST}")
        except (pa.ArrowException, OSError) as why:
            raise _unusable(self.url, why) from why
        return bool(found.type != fs.FileType.NotFound)


def _chunks(data: object, size: int) -> Iterator[bytes]:
    while size and (chunk := data.read(min(size, _CHUNK))):  # type: ignore[attr-defined]
        size -= len(chunk)
        yield chunk


def _unusable(what: str, why: Exception) -> PenstockError:
    return fail("PSK-6008", f"{what} cannot be used: {why}.")


def _listed(manifest: Manifest) -> dict[str, tuple[int, int]]:
    """All files but the manifest, with sizes and checksums."""
    large = {f"{key}/{name}": known for key, job in manifest.jobs.items() for name, known in job.large.items()}
    return {BODY: manifest.body, **large, **manifest.files}


def export_checkpoint(store: CheckpointStore, id: int, url: str) -> Manifest:
    """Copies a checkpoint to an empty place. Everything is compared with its checksums before, while and after it is written; the manifest comes last."""
    if id not in store.ids():
        raise fail("PSK-6005", f"There is no checkpoint {id}.")
    manifest = store.verify(id)
    if not manifest.whole:
        raise fail("PSK-6006", f"Checkpoint {id} was made by an earlier version, which saved queries alone.")
    place = Place(url)
    if place.taken():
        raise fail("PSK-6008", f"{place.url} has a savepoint already.")
    for name, (size, crc) in _listed(manifest).items():
        written = place.write(name, store.path(id) / name, size)
        if written != crc or place.read(name, None) != (size, crc):
            raise fail("PSK-6009", f"{place.url}/{name} is not what was written: its checksum does not match.")
    file = store.path(id) / MANIFEST
    place.write(MANIFEST, file, file.stat().st_size)
    return manifest


def import_checkpoint(url: str, folder: Path) -> Manifest:
    """Makes a database from a savepoint, in a folder that does not exist or is empty. Everything is compared with its checksums. Sinks go on where they were; only one of both databases may deliver."""
    layout = Layout(folder.absolute())
    if layout.root.exists() and any(layout.root.iterdir()):
        raise fail("PSK-6008", f"{folder} is not empty.")
    place, store = Place(url), CheckpointStore(layout.checkpoints)
    incoming = layout.checkpoints / "0"
    make_folder(incoming)
    try:
        place.read(MANIFEST, incoming / MANIFEST)
        manifest = replace(store.manifest(0), id=0)
        for name, known in _listed(manifest).items():
            target = incoming / name
            make_folder(target.parent)
            if place.read(name, target) != known:
                raise fail("PSK-6009", f"{place.url}/{name} is damaged: its checksum does not match.")
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
