"""Checkpoints on disk: each is a folder with a manifest, a body of format 2, and links to large files.

The body (`penstock.checkpoint`) has the sequence number and watermark of each source, the position of each sink, and the small files of each job. The manifest
has the checksums of everything. A folder gets its name when all of it is on disk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import google_crc32c

from penstock.checkpoint import StreamCheckpoint
from penstock.disk import link, make_folder, read_json, sync_file, sync_folder, unwritable, write_durably, write_json
from penstock.errors import PenstockError, fail
from penstock.log.maps import map_file

FORMAT = 1
_NEW = ".new"
_MANIFEST = "manifest.json"
_BODY = "body"
_HINT = "An older checkpoint may be whole: penstock checkpoint verify says which are."


@dataclass(frozen=True)
class SavedJob:
    """A job in a checkpoint: its generation, how far it had come, and size and checksum of each large file."""

    base: int
    lsn: int
    roster: int
    large: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint has. `lsn` is the last commit when it was complete; `jobs` are by their folders, relative to the database."""

    id: int
    lsn: int
    time_ms: int
    duration_ms: int
    catalog: int
    bytes: int
    body: tuple[int, int]
    jobs: Mapping[str, SavedJob]


class CheckpointStore:
    """The checkpoints of a database. One thread at a time writes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sums: dict[tuple[int, int], int] = {}

    def ids(self) -> list[int]:
        """The checkpoints that were completed, oldest first."""
        return sorted(int(f.name) for f in self._folder.glob("*") if f.name.isdecimal())

    def manifest(self, id: int) -> Manifest:
        """Raises PSK-6001 if it is damaged."""
        path = self._path(id) / _MANIFEST
        lost = f"Checkpoint {id} cannot be used."
        try:
            found = read_json(path, FORMAT, lost=lost, hint=_HINT)
            jobs = {
                key: SavedJob(j["base"], j["lsn"], j["roster"], {n: (s, c) for n, (s, c) in j["large"].items()})
                for key, j in found.pop("jobs").items()
            }
            return Manifest(**found | {"jobs": jobs, "body": tuple(found["body"])})
        except FileNotFoundError as why:
            raise fail("PSK-6001", f"{path} is missing. {lost}", hint=_HINT) from why
        except (KeyError, TypeError, ValueError, AttributeError) as why:
            raise fail("PSK-6001", f"{path} is damaged: {why!r}. {lost}", hint=_HINT) from why

    def body(self, manifest: Manifest) -> StreamCheckpoint:
        """Raises PSK-6001 if it is damaged."""
        path = self._path(manifest.id) / _BODY
        self._check(path, *manifest.body)
        return StreamCheckpoint.from_bytes(path.read_bytes())

    def verify(self, id: int) -> Manifest:
        """Reads all of a checkpoint; raises PSK-6001 if anything is missing or damaged."""
        manifest = self.manifest(id)
        self.body(manifest)
        for key in manifest.jobs:
            self.large(manifest, key)
        return manifest

    def large(self, manifest: Manifest, key: str) -> dict[str, Path]:
        """The large files of a job, verified."""
        found = {}
        for name, (size, crc) in manifest.jobs[key].large.items():
            found[name] = self._path(manifest.id) / key / name
            self._check(found[name], size, crc)
        return found

    def _check(self, path: Path, size: int, crc: int) -> None:
        try:
            data = map_file(str(path))
        except OSError as why:
            raise fail("PSK-6001", f"{path} cannot be read: {why.strerror or why}.", hint=_HINT) from why
        if data.size != size or google_crc32c.value(data) != crc:
            raise fail("PSK-6001", f"{path} is damaged: its checksum does not match.", hint=_HINT)

    def write(
        self,
        body: StreamCheckpoint,
        jobs: Mapping[str, SavedJob],
        large: Mapping[str, Mapping[str, Path]],
        *,
        lsn: int,
        catalog: int,
        duration_ms: int,
    ) -> Manifest:
        """Writes a checkpoint. When this returns, all of it is on disk. Raises PSK-7004; nothing is left of it then.

        1. Link the large files, and sync them, because nobody else has. 2. Write the body. 3. Write the manifest. 4. Give the folder its name.
        """
        made, target = self._folder / f"{body.id}{_NEW}", self._path(body.id)
        shutil.rmtree(made, ignore_errors=True)
        try:
            make_folder(made)
            linked = {key: self._link(made / key, files) for key, files in large.items()}
            data = body.to_bytes()
            write_durably(made / _BODY, data)
            manifest = Manifest(
                id=body.id,
                lsn=lsn,
                time_ms=body.created_at,
                duration_ms=duration_ms,
                catalog=catalog,
                bytes=len(data) + sum(size for files in linked.values() for size, _ in files.values()),
                body=(len(data), google_crc32c.value(data)),
                jobs={k: SavedJob(j.base, j.lsn, j.roster, linked.get(k, {})) for k, j in jobs.items()},
            )
            write_json(made / _MANIFEST, asdict(manifest), FORMAT)
            os.replace(made, target)
            sync_folder(self._folder)
        except OSError as error:
            shutil.rmtree(made, ignore_errors=True)
            raise unwritable(target, error) from error
        except PenstockError:
            shutil.rmtree(made, ignore_errors=True)
            raise
        return manifest

    def _link(self, folder: Path, files: Mapping[str, Path]) -> dict[str, tuple[int, int]]:
        """Links files; a file that an earlier checkpoint has is on disk and has its checksum."""
        sums = {}
        for name, path in files.items():
            target = folder / name
            make_folder(target.parent)
            link(path, target)
            about = target.stat()
            known = self._sums.get((about.st_ino, about.st_size))
            if known is None:
                known = google_crc32c.value(map_file(str(target)))
                self._sums[about.st_ino, about.st_size] = known
                sync_file(target)
            else:
                sync_folder(target.parent)
            sums[name] = (about.st_size, known)
        return sums

    def prune(self, keep: int) -> list[int]:
        """Removes all but the newest checkpoints, and what a crash has left of unfinished ones; returns those removed."""
        gone = self.ids()[:-keep] if keep else self.ids()
        for id in gone:
            # Without its manifest it is no checkpoint, whatever else is still there.
            (self._path(id) / _MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(self._path(id), ignore_errors=True)
        for left in self._folder.glob(f"*{_NEW}"):
            shutil.rmtree(left, ignore_errors=True)
        if gone:
            kept = {(f.stat().st_ino, f.stat().st_size) for f in self._folder.rglob("*") if f.is_file()}
            self._sums = {key: crc for key, crc in self._sums.items() if key in kept}
        return gone

    def _path(self, id: int) -> Path:
        return self._folder / str(id)
