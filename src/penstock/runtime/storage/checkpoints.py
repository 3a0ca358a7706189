"""Checkpoints on disk: each is a folder with a manifest, a body of format 2, and links to the files of the database.

The body (`penstock.checkpoint`) has the sequence number and watermark of each source, the position of each sink, and the small files of each job. The manifest
has the checksums of everything. A folder gets its name when all of it is on disk. It has all that the database needs to go back to it: the catalogue, the log,
the contents that the log no longer has, the files of jobs, and what queries began with.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import google_crc32c

from penstock.checkpoint import StreamCheckpoint
from penstock.disk import (
    crash_point,
    inner,
    link,
    make_folder,
    read_json,
    sync_file,
    sync_folder,
    unwritable,
    write_durably,
    write_json,
)
from penstock.errors import fail
from penstock.log.maps import map_file
from penstock.runtime.storage.format import FORMAT as FOLDER
from penstock.runtime.storage.lending import lent, remove_left

FORMAT = 3
CATALOG = "catalog.json"
LOG = "log"
_NEW = ".new"
MANIFEST = "manifest.json"
BODY = "body"
_LAST = "last.json"
_HINT = "An older checkpoint may be whole: penstock checkpoint verify says which are."


@dataclass(frozen=True)
class SavedJob:
    """A job in a checkpoint: its generation, how far it had come, and size and checksum of each large file."""

    base: int
    lsn: int
    roster: int
    large: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class SavedSink:
    """A sink in a checkpoint: the last epoch that it had delivered, the last one of its stream, and its status: `committed`, `pending` if more was to be delivered, `failed` if it could not."""

    epoch: int
    newest: int
    status: str


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint has. `lsn` is the last commit in it; `jobs` are by their folders, relative to the database; `plans` has the hash of each query's
    plan; `files` are the other files, by their paths in the database, with size and checksum."""

    id: int
    lsn: int
    time_ms: int
    duration_ms: int
    catalog: int
    bytes: int
    body: tuple[int, int]
    jobs: Mapping[str, SavedJob]
    sinks: Mapping[str, SavedSink] = field(default_factory=dict)
    plans: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    folder: int = 0
    """The format of the folder."""

    @property
    def whole(self) -> bool:
        """Whether the database can go back to it. Earlier versions only saved jobs."""
        return CATALOG in self.files


def listed(manifest: Manifest) -> dict[str, tuple[int, int]]:
    """All files of a checkpoint but the manifest, with sizes and checksums."""
    large = {f"{key}/{name}": known for key, job in manifest.jobs.items() for name, known in job.large.items()}
    return {BODY: manifest.body, **large, **manifest.files}


class CheckpointStore:
    """The checkpoints of a database. One thread at a time writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sums: dict[int, tuple[int, int]] = {}
        """Of files that never change, or only grow, by inode: how many bytes of it are on disk, and their checksum."""

    def ids(self) -> list[int]:
        """The checkpoints that were completed, oldest first."""
        return sorted(int(f.name) for f in self.folder.glob("*") if f.name.isdecimal())

    def next_id(self) -> int:
        """An id that no checkpoint has had. Raises PSK-6001 if that is unknown."""
        try:
            last = read_json(
                self.folder / _LAST,
                FORMAT,
                lost="The last id is unknown.",
                hint="Write a new one, or remove the file.",
            )
        except FileNotFoundError:
            last = 0
        return max([int(last), *self.ids()]) + 1

    def manifest(self, id: int) -> Manifest:
        """Raises PSK-6001 if it is damaged."""
        path = self.path(id) / MANIFEST
        lost = f"Checkpoint {id} cannot be used."
        try:
            found = read_json(path, FORMAT, lost=lost, hint=_HINT)
            jobs = {
                inner(key): SavedJob(
                    j["base"], j["lsn"], j["roster"], {inner(n): (s, c) for n, (s, c) in j["large"].items()}
                )
                for key, j in found.pop("jobs").items()
            }
            sinks = {name: SavedSink(**s) for name, s in found.pop("sinks", {}).items()}
            files = {inner(name): (s, c) for name, (s, c) in found.pop("files", {}).items()}
            return Manifest(**found | {"jobs": jobs, "sinks": sinks, "files": files, "body": tuple(found["body"])})
        except FileNotFoundError as why:
            raise fail("PSK-6001", f"{path} is missing. {lost}", hint=_HINT) from why
        except (KeyError, TypeError, ValueError, AttributeError) as why:
            raise fail("PSK-6001", f"{path} is damaged: {why!r}. {lost}", hint=_HINT) from why

    def body(self, manifest: Manifest) -> StreamCheckpoint:
        """Raises PSK-6001 if it is damaged."""
        path = self.path(manifest.id) / BODY
        _check(path, *manifest.body)
        return StreamCheckpoint.from_bytes(path.read_bytes())

    def verify(self, id: int) -> Manifest:
        """Reads all of a checkpoint; raises PSK-6001 if anything is missing or damaged."""
        manifest = self.manifest(id)
        self.body(manifest)
        for key in manifest.jobs:
            self.large(manifest, key)
        for name, (size, crc) in manifest.files.items():
            # The last segment of the log may have grown.
            _check(self.path(id) / name, size, crc, grows=name.startswith(f"{LOG}/"))
        return manifest

    def large(self, manifest: Manifest, key: str) -> dict[str, Path]:
        """The large files of a job, verified."""
        found = {}
        for name, (size, crc) in manifest.jobs[key].large.items():
            found[name] = self.path(manifest.id) / key / name
            _check(found[name], size, crc)
        return found

    def sum(self, path: Path, size: int) -> int:
        """The checksum of the first bytes of a file, and makes them durable; of those that were summed before, neither is done again."""
        about = path.stat()
        done, crc = self._sums.get(about.st_ino, (0, 0))
        if done > size:
            done, crc = 0, 0
        if done < size or not size:
            data = map_file(str(path))
            if data.size < size:
                raise fail("PSK-6001", f"{path} has {data.size} bytes, and {size} were written.")
            crc = google_crc32c.extend(crc, data.slice(done, size - done)) if size else google_crc32c.value(b"")
            sync_file(path)
            self._sums[about.st_ino] = (size, crc)
        return int(crc)

    def forget_sums(self, files: Iterable[Path]) -> None:
        """Before files are removed: the inode of one that has no other name may become that of another file."""
        for path in files:
            with suppress(OSError):
                about = path.stat()
                if about.st_nlink == 1:
                    self._sums.pop(about.st_ino, None)

    def prune(self, keep: int) -> list[int]:
        """Removes all but the newest checkpoints, and what a crash has left of unfinished ones; returns those removed."""
        known = self.ids()
        gone = known[:-keep] if keep else known
        if gone and gone[-1] == known[-1]:
            write_json(self.folder / _LAST, known[-1], FORMAT)
        for id in gone:
            # Without its manifest it is no checkpoint, whatever else is still there.
            (self.path(id) / MANIFEST).unlink(missing_ok=True)
            crash_point("checkpoint.pruned")
            shutil.rmtree(self.path(id), ignore_errors=True)
        for left in self.folder.glob(f"*{_NEW}"):
            shutil.rmtree(left, ignore_errors=True)
        remove_left(self.folder)
        if gone:
            kept = self._inodes()
            self._sums = {inode: known for inode, known in self._sums.items() if inode in kept}
        return gone

    def _inodes(self) -> set[int]:
        """Of the files of all checkpoints."""
        found = set()
        for id in self.ids():
            for parent, _, files in os.walk(self.path(id)):
                found |= {os.stat(f"{parent}/{name}").st_ino for name in files}
        return found

    @contextmanager
    def lent(self, id: int) -> Iterator[tuple[Path, Manifest]]:
        """A folder with all files of a checkpoint, and its manifest, for the time of a block, even if it is pruned meanwhile. Raises PSK-6005 if there is none, PSK-6001 if something is missing, PSK-7004."""
        if id not in self.ids():
            known = ", ".join(map(str, self.ids())) or "none"
            raise fail("PSK-6005", f"There is no checkpoint {id}. Kept are: {known}.")
        manifest = self.manifest(id)
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(lent(self.folder, id, (*listed(manifest), MANIFEST)))
            except FileNotFoundError as why:
                if id not in self.ids() or not (self.path(id) / MANIFEST).exists():
                    raise fail("PSK-6005", f"Checkpoint {id} was removed.") from why
                raise fail(
                    "PSK-6001", f"{why.filename} is missing. Checkpoint {id} cannot be used.", hint=_HINT
                ) from why
            except OSError as why:
                raise unwritable(self.path(id), why) from why
            yield folder, manifest

    def path(self, id: int) -> Path:
        return self.folder / str(id)

    def draft(self, id: int) -> CheckpointDraft:
        """A checkpoint that is being made. Nothing is left of it unless it is completed."""
        return CheckpointDraft(self, id, self.folder / f"{id}{_NEW}")


class CheckpointDraft:
    """A checkpoint that is being made: 1. `add` links files, which is quick. 2. `complete` sums and syncs them, writes the body and the manifest, and gives the folder its name."""

    def __init__(self, store: CheckpointStore, id: int, folder: Path) -> None:
        self.id = id
        self.folder = folder
        self._store = store
        self._files: dict[str, int] = {}

    def __enter__(self) -> Self:
        shutil.rmtree(self.folder, ignore_errors=True)
        make_folder(self.folder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._store.forget_sums(self.folder / name for name in self._files)
        shutil.rmtree(self.folder, ignore_errors=True)
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise unwritable(self._store.path(self.id), error) from error

    def add(self, name: str, path: Path, size: int | None = None) -> None:
        """Links a file, of which the first bytes count; all of it without a size. Raises FileNotFoundError if it is gone."""
        target = self._target(name)
        link(path, target)
        self._files[name] = target.stat().st_size if size is None else size

    def put(self, name: str, data: bytes) -> None:
        self._target(name).write_bytes(data)
        self._files[name] = len(data)

    def _target(self, name: str) -> Path:
        target = self.folder / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return target

    def complete(
        self,
        body: StreamCheckpoint,
        jobs: Mapping[str, SavedJob],
        *,
        lsn: int,
        catalog: int,
        begun: float,
        until: float | None = None,
        sinks: Mapping[str, SavedSink] | None = None,
        plans: Mapping[str, str] | None = None,
    ) -> Manifest:
        """When this returns, all of it is on disk. `jobs` name their large files, without sums. `begun` and `until` are times of the monotonic clock; raises PSK-6014 after `until`."""
        sums: dict[str, tuple[int, int]] = {}
        for name, size in self._files.items():
            if until is not None and time.monotonic() > until:
                raise fail(
                    "PSK-6014",
                    f"Checkpoint {self.id} took longer than {until - begun:.1f} s: {len(sums)} of {len(self._files)} files were written to disk.",
                    hint="The next one goes on with the rest. checkpoint.timeout_ms allows more time.",
                )
            sums[name] = (size, self._store.sum(self.folder / name, size))
        crash_point("checkpoint.linked")
        data = body.to_bytes()
        write_durably(self.folder / BODY, data)
        whole = {
            key: replace(job, large={name: sums.pop(f"{key}/{name}") for name in job.large})
            for key, job in jobs.items()
        }
        large = sum(size for job in whole.values() for size, _ in job.large.values())
        manifest = Manifest(
            id=self.id,
            lsn=lsn,
            time_ms=body.created_at,
            duration_ms=int((time.monotonic() - begun) * 1000),
            catalog=catalog,
            bytes=len(data) + large + sum(size for size, _ in sums.values()),
            body=(len(data), google_crc32c.value(data)),
            jobs=whole,
            sinks=sinks or {},
            plans=plans or {},
            files=sums,
            folder=FOLDER,
        )
        write_json(self.folder / MANIFEST, asdict(manifest), FORMAT)
        for folder, _, _ in os.walk(self.folder):
            sync_folder(Path(folder))
        crash_point("checkpoint.written")
        self.name()
        return manifest

    def name(self) -> None:
        """Makes it a checkpoint, durably, or removes it. Raises OSError."""
        target = self._store.path(self.id)
        os.replace(self.folder, target)
        try:
            sync_folder(target.parent)
        except OSError:
            shutil.rmtree(target, ignore_errors=True)
            raise


def _check(path: Path, size: int, crc: int, *, grows: bool = False) -> None:
    try:
        data = map_file(str(path))
    except OSError as why:
        raise fail("PSK-6001", f"{path} cannot be read: {why.strerror or why}.", hint=_HINT) from why
    short = data.size < size if grows else data.size != size
    if short or google_crc32c.value(data.slice(0, size)) != crc:
        raise fail("PSK-6001", f"{path} is damaged: its checksum does not match.", hint=_HINT)


__all__ = [
    "BODY",
    "CATALOG",
    "LOG",
    "MANIFEST",
    "CheckpointDraft",
    "CheckpointStore",
    "Manifest",
    "SavedJob",
    "SavedSink",
    "listed",
]
