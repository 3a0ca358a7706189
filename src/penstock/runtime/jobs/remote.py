"""The checkpoints of a database outside of its folder, one after the other, in a folder or an object store.

`objects/…` has files of checkpoints, each once for all checkpoints that have it: its name is its path in the database with its size and checksum. `checkpoints/<id>.json` lists the
files of one checkpoint; it is written last, so there is all of a checkpoint or none. `owner.json` says whose it is: ids of two databases would be mixed up.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import google_crc32c

from penstock.disk import crash_point, inner, make_folder, pack_json, read_json, sync_folder, unpack_json, write_json
from penstock.errors import PenstockError, fail
from penstock.runtime.jobs.place import Place
from penstock.runtime.storage.checkpoints import MANIFEST, CheckpointStore, ids_in, listed

_FORMAT = 1
_OWNER = "owner.json"
_LISTS = "checkpoints"
_OBJECTS = "objects"
_IDENTITY = "identity.json"
_HINT = "penstock checkpoint verify says which ones are whole."

_logger = logging.getLogger(__name__)


def identity(folder: Path) -> str:
    """What tells a database from others, from its first upload on; kept beside its checkpoints, which a restore leaves as they are. Raises PSK-6001, PSK-7004."""
    path = folder / _IDENTITY
    try:
        return str(
            read_json(
                path,
                _FORMAT,
                lost="Whose uploaded checkpoints are whose is unknown.",
                hint="Remove it, and choose another checkpoint.url.",
            )
        )
    except FileNotFoundError:
        made = uuid4().hex
        make_folder(folder)
        write_json(path, made, _FORMAT)
        return made


@dataclass(frozen=True)
class Uploaded:
    """A checkpoint outside of its folder: the last commit, and size and checksum of each file by its path."""

    id: int
    lsn: int
    time_ms: int
    queries: int
    bytes: int
    files: dict[str, tuple[int, int]]


class RemoteCheckpoints:
    """The checkpoints in a place. One process at a time uploads. Raises PSK-6008 if the place cannot be used."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def ids(self) -> list[int]:
        """The oldest first."""
        return ids_in(n.removesuffix(".json") for n in self.place.sizes(_LISTS) if n.endswith(".json"))

    def get(self, id: int) -> Uploaded:
        """Raises PSK-6005 if there is none, PSK-6009 if its list is damaged."""
        name = f"{_LISTS}/{id}.json"
        data = self.place.get(name)
        if data is None:
            known = ", ".join(map(str, self.ids())) or "none"
            raise fail(
                "PSK-6005",
                f"{self.place.url} has no checkpoint {id}. There are: {known}.",
                hint=f"penstock checkpoint list {self.place.url} shows them.",
            )
        try:
            found = unpack_json(data, _FORMAT, Path(name))
            files = {inner(path): (int(size), int(crc)) for path, (size, crc) in found.pop("files").items()}
            made = Uploaded(**found | {"files": files})
        except (KeyError, TypeError, ValueError, AttributeError) as why:
            raise self._damaged(name) from why
        if made.id != id:
            raise self._damaged(name, f"it lists checkpoint {made.id}")
        return made

    def upload(self, store: CheckpointStore, id: int, owner: str) -> bool:
        """Copies what is not there yet; False if all of it is. Raises PSK-6005 if the checkpoint is no longer kept, PSK-6001 if it is damaged, PSK-6008 if the place is another database's."""
        self._claim(owner)
        known = self.ids()
        with store.lent(id) as (folder, manifest):
            data = (folder / MANIFEST).read_bytes()
            files = listed(manifest) | {MANIFEST: (len(data), int(google_crc32c.value(data)))}
            if known and known[-1] >= id:
                if known[-1] == id and self.get(id).files == files:
                    return False
                raise fail(
                    "PSK-6008",
                    f"{self.place.url} has checkpoint {known[-1]}, which this database has not made.",
                    hint="A copy of the database uploads there, or the folder is an older one. Choose another checkpoint.url.",
                )
            there = self.place.sizes(_OBJECTS)
            for path, (size, crc) in files.items():
                name = _object(path, size, crc)
                if there.get(name) == size:
                    continue
                if self.place.write(f"{_OBJECTS}/{name}", folder / path, size) != crc:
                    self.place.remove(f"{_OBJECTS}/{name}")
                    raise fail("PSK-6001", f"{store.path(id) / path} is damaged: its checksum does not match.")
        crash_point("upload.copied")
        made = Uploaded(id, manifest.lsn, manifest.time_ms, len(manifest.jobs), manifest.bytes, files)
        content = {**made.__dict__, "files": {path: list(known) for path, known in files.items()}}
        self.place.put(f"{_LISTS}/{id}.json", pack_json(content, _FORMAT))
        crash_point("upload.listed")
        return True

    def _claim(self, owner: str) -> None:
        if not self.is_of(owner):
            self.place.put(_OWNER, pack_json(owner, _FORMAT))

    def is_of(self, owner: str) -> bool:
        """Whether the checkpoints are those of a database; False if there are none. Raises PSK-6008 if they are another's."""
        data = self.place.get(_OWNER)
        if data is None:
            if self.ids():
                raise fail("PSK-6008", f"{self.place.url} has checkpoints, and no {_OWNER} that says whose they are.")
            return False
        try:
            known = unpack_json(data, _FORMAT, Path(_OWNER))
        except ValueError as why:
            raise self._damaged(_OWNER) from why
        if known != owner:
            raise fail(
                "PSK-6008",
                f"{self.place.url} has the checkpoints of another database.",
                hint="Give each database a checkpoint.url of its own, also one that was imported from here.",
            )
        return True

    def prune(self, keep: int, spare: int | None = None) -> list[int]:
        """Removes all but the newest checkpoints and the one to `spare`, and files that no checkpoint has; returns those removed."""
        known = self.ids()
        gone = [id for id in known[:-keep] if id != spare]
        for id in gone:
            self.place.remove(f"{_LISTS}/{id}.json")
            crash_point("upload.pruned")
        needed: set[str] = set()
        for id in sorted(set(known) - set(gone)):
            try:
                needed |= {_object(path, *facts) for path, facts in self.get(id).files.items()}
            except PenstockError as why:
                if why.code != "PSK-6009":
                    raise
                _logger.warning("nothing is removed from %s: %s", self.place.url, why.detail)
                return gone
        for name in self.place.sizes(_OBJECTS).keys() - needed:
            self.place.remove(f"{_OBJECTS}/{name}")
        return gone

    def verify(self, id: int) -> Uploaded:
        """Reads all of a checkpoint; raises PSK-6009 if anything is missing or damaged."""
        found = self.get(id)
        for path, known in found.files.items():
            self._copy(path, known, None)
        return found

    def fetch(self, id: int, folder: Path) -> Uploaded:
        """Copies all of a checkpoint into a folder. Raises PSK-6009 if anything is missing or damaged, PSK-7004."""
        found = self.get(id)
        for path, known in found.files.items():
            make_folder((folder / path).parent)
            self._copy(path, known, folder / path)
        return found

    def fetch_into(self, store: CheckpointStore, id: int) -> None:
        """Makes a checkpoint that is there one of the database, which nobody else changes meanwhile."""
        with store.draft(id) as draft:
            self.fetch(id, draft.folder)
            for folder, _, _ in os.walk(draft.folder):
                sync_folder(Path(folder))
            draft.name()

    def _copy(self, path: str, known: tuple[int, int], target: Path | None) -> None:
        name = f"{_OBJECTS}/{_object(path, *known)}"
        if not self.place.has(name):
            raise self._damaged(name, "it is missing")
        if self.place.read(name, target) != known:
            raise self._damaged(name)

    def _damaged(self, name: str, why: str = "its checksum does not match") -> PenstockError:
        return fail("PSK-6009", f"{self.place.url}/{name} is damaged: {why}.", hint=_HINT)


def _object(path: str, size: int, crc: int) -> str:
    return f"{path}.{size}-{crc:08x}"


def remote(url: str, root: Path | None = None, go_on: Callable[[], None] | None = None) -> RemoteCheckpoints:
    """The checkpoints in a place; `root` is the folder of the database, in which they cannot be."""
    return RemoteCheckpoints(place_outside(url, root, go_on))


def place_outside(url: str, root: Path | None, go_on: Callable[[], None] | None = None) -> Place:
    """Raises PSK-6008 for a place in the folder of the database."""
    place = Place(url, go_on) if go_on is not None else Place(url)
    if root is not None and place.folder is not None and place.folder.resolve().is_relative_to(root.resolve()):
        raise fail("PSK-6008", f"{place.url} is in the folder of the database.")
    return place


__all__ = ["RemoteCheckpoints", "Uploaded", "identity", "remote"]
