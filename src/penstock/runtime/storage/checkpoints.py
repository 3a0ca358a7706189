"""Checkpoints on disk: each is a folder with a manifest, a body of format 2, and links to the files of the database.

The body (`penstock.checkpoint`) has the sequence number and watermark of each source, the position of each sink, and the small files of each job. The manifest
has the checksums of everything. A folder gets its name when all of it is on disk. It has all that the database needs to go back to it: the catalogue, the log,
the contents that the log no longer has, the files of jobs, and what queries began with.
"""

from __future__ import annotations

import errno
import os
import re
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
    unpack_json,
    unwritable,
    write_durably,
    write_json,
)
from penstock.errors import PenstockError, fail
from penstock.log.maps import map_file
from penstock.runtime.storage.format import FORMAT as FOLDER
from penstock.runtime.storage.layout import remove
from penstock.runtime.storage.lending import lent, remove_left

FORMAT = 3
CATALOG = "catalog.json"
LOG = "log"
_NEW, _GONE = ".new", ".gone"
MANIFEST = "manifest.json"
BODY = "body"
_LAST = "last.json"
INCOMING = 0
"""The folder of a checkpoint that is being imported; its manifest has the id that it had elsewhere."""
_ID = re.compile("[1-9][0-9]{0,18}")
_HINT = "An older checkpoint may be whole: penstock checkpoint verify says which are."


def ids_in(names: Iterable[str]) -> list[int]:
    """The ids among the names of checkpoints, the oldest first."""
    return sorted(int(n) for n in names if _ID.fullmatch(n))


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
    damaged: tuple[str, ...] = ()
    """Objects whose contents were damaged, and are not in it."""

    @property
    def whole(self) -> bool:
        """Whether the database can go back to it. Earlier versions only saved jobs."""
        return CATALOG in self.files


def listed(manifest: Manifest) -> dict[str, tuple[int, int]]:
    """All files of a checkpoint but the manifest, with sizes and checksums."""
    large = {f"{key}/{name}": known for key, job in manifest.jobs.items() for name, known in job.large.items()}
    return {BODY: manifest.body, **large, **manifest.files}


@dataclass(frozen=True)
class Summed:
    """The checksum of the first bytes of a file, which are on disk. A file that has been removed may give its inode to another one: that has another name or time."""

    name: str
    time_ns: int
    size: int
    crc: int


def read_manifest(data: bytes, path: Path, lost: str) -> Manifest:
    """The manifest in a file. Raises PSK-6001 with what is `lost` if it is damaged, PSK-6002 if a newer version wrote it."""
    try:
        found = unpack_json(data, FORMAT, path)
        jobs = {
            inner(key): SavedJob(
                j["base"], j["lsn"], j["roster"], {inner(n): (s, c) for n, (s, c) in j["large"].items()}
            )
            for key, j in found.pop("jobs").items()
        }
        sinks = {name: SavedSink(**s) for name, s in found.pop("sinks", {}).items()}
        files = {inner(name): (s, c) for name, (s, c) in found.pop("files", {}).items()}
        tuples = {"body": tuple(found["body"]), "damaged": tuple(map(str, found.get("damaged", ())))}
        return Manifest(**found | {"jobs": jobs, "sinks": sinks, "files": files} | tuples)
    except (KeyError, TypeError, ValueError, AttributeError) as why:
        raise fail("PSK-6001", f"{path} is damaged: {why}. {lost}", hint=_HINT) from why


class CheckpointStore:
    """The checkpoints of a database. One thread at a time writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sums: dict[int, Summed] = {}
        """By inode."""
        self._last = 0

    def ids(self) -> list[int]:
        """The checkpoints that were completed, oldest first. Raises PSK-6001 if that is unknown."""
        try:
            with os.scandir(self.folder) as found:
                return ids_in(f.name for f in found if f.is_dir())
        except FileNotFoundError:
            return []
        except OSError as why:
            raise fail(
                "PSK-6001",
                f"{self.folder} cannot be read: {why.strerror or why}. Which checkpoints there are is unknown.",
                hint="Give the process access to the folder.",
            ) from why

    def next_id(self) -> int:
        """An id that no checkpoint has had. Raises PSK-6001 if that is unknown."""
        try:
            last = read_json(
                self.folder / _LAST,
                FORMAT,
                lost="The last id is unknown.",
                hint="Remove the file: ids then go on after those of the checkpoints that are kept.",
            )
        except FileNotFoundError:
            last = 0
        # Of this process, also if the folder was emptied meanwhile.
        self._last = max([self._last, int(last), *self.ids()]) + 1
        return self._last

    def manifest(self, id: int) -> Manifest:
        """Raises PSK-6001 if it is damaged, or that of another checkpoint."""
        path = self.path(id) / MANIFEST
        try:
            found = read_manifest(path.read_bytes(), path, f"Checkpoint {id} cannot be used.")
        except FileNotFoundError as why:
            raise fail("PSK-6001", f"{path} is missing. Checkpoint {id} cannot be used.", hint=_HINT) from why
        except OSError as why:
            raise fail("PSK-6001", f"{path} cannot be read: {why.strerror or why}.", hint=_HINT) from why
        if id not in (found.id, INCOMING):
            raise fail(
                "PSK-6001", f"{path} is that of checkpoint {found.id}. Checkpoint {id} cannot be used.", hint=_HINT
            )
        return found

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

    def sum(self, path: Path, size: int, name: str, *, grows: bool = False) -> int:
        """The checksum of the first bytes of a file with a name in checkpoints, and makes them durable; of those that were summed before, neither is done again. Unless it `grows`, it never changes."""
        about = path.stat()
        known = self._sums.get(about.st_ino)
        if known is not None and (
            known.name != name or known.size > size or not (grows or known.time_ns == about.st_mtime_ns)
        ):
            known = None
        done, crc = (known.size, known.crc) if known is not None else (0, int(google_crc32c.value(b"")))
        if known is None or done < size:
            data = map_file(str(path))
            if data.size < size:
                raise fail("PSK-6001", f"{path} has {data.size} bytes, and {size} were written.")
            crc = int(google_crc32c.extend(crc, data.slice(done, size - done))) if size else crc
            sync_file(path)
        self._sums[about.st_ino] = Summed(name, about.st_mtime_ns, size, crc)
        return crc

    def prune(self, keep: int, spare: int | None = None) -> list[int]:
        """Removes all but the newest checkpoints and the one to `spare`, and what a crash has left of unfinished ones; returns those removed."""
        known = self.ids()
        gone = [id for id in (known[:-keep] if keep else known) if id != spare]
        if gone and gone[-1] == known[-1]:
            write_json(self.folder / _LAST, known[-1], FORMAT)
        for id in gone:
            try:
                # Under this name it is no checkpoint, however much of it is still there.
                os.replace(self.path(id), self.folder / f"{id}{_GONE}")
            except OSError as why:
                raise unwritable(self.path(id), why) from why
            crash_point("checkpoint.pruned")
            remove(self.folder / f"{id}{_GONE}")
        for left in (*self.folder.glob(f"*{_NEW}"), *self.folder.glob(f"*{_GONE}"), self.path(INCOMING)):
            remove(left)
        remove_left(self.folder)
        if gone:
            kept = self._inodes()
            self._sums = {inode: known for inode, known in self._sums.items() if inode in kept}
        return gone

    def newest(self) -> Manifest | None:
        """The newest checkpoint whose manifest can be read; None if there is none."""
        with suppress(PenstockError):
            for id in reversed(self.ids()):
                with suppress(PenstockError):
                    return self.manifest(id)
        return None

    def spared(self, keep: int) -> Manifest | None:
        """The newest checkpoint in which no contents were damaged, if it is not among the newest. Raises PSK-6001 if it is unknown which there are."""
        for place, id in enumerate(reversed(self.ids())):
            try:
                found = self.manifest(id)
            except PenstockError:
                continue
            if not found.damaged:
                return found if place >= keep else None
        return None

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
                if why.errno not in (errno.EROFS, errno.EACCES):
                    raise unwritable(self.path(id), why) from why
                # Whoever may not write here may still read.
                folder = self.path(id)
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
        self._growing: str | None = None
        self._completing = False

    def __enter__(self) -> Self:
        shutil.rmtree(self.folder, ignore_errors=True)
        make_folder(self.folder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        # While files are linked, one that is gone is no error of the disk.
        if isinstance(error, OSError) and (self._completing or not isinstance(error, FileNotFoundError)):
            raise unwritable(self._store.path(self.id), error) from error

    def add(self, name: str, path: Path, size: int | None = None, *, grows: bool = False) -> None:
        """Links a file, of which the first bytes count; all of it without a size. One of them may grow at its end. Raises FileNotFoundError if it is gone."""
        if grows:
            self._growing = name
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
        damaged: tuple[str, ...] = (),
    ) -> Manifest:
        """When this returns, all of it is on disk. `jobs` name their large files, without sums. `begun` and `until` are times of the monotonic clock; raises PSK-6014 after `until`."""
        self._completing = True
        sums: dict[str, tuple[int, int]] = {}
        for name, size in self._files.items():
            if until is not None and time.monotonic() > until:
                raise fail(
                    "PSK-6014",
                    f"Checkpoint {self.id} took longer than {until - begun:.1f} s: {len(sums)} of {len(self._files)} files were written to disk.",
                    hint="The next one goes on with the rest. checkpoint.timeout_ms allows more time.",
                )
            sums[name] = (size, self._store.sum(self.folder / name, size, name, grows=name == self._growing))
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
            damaged=damaged,
        )
        content = asdict(manifest)
        if not damaged:
            # Earlier versions do not know it.
            del content["damaged"]
        write_json(self.folder / MANIFEST, content, FORMAT)
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
    "INCOMING",
    "LOG",
    "MANIFEST",
    "CheckpointDraft",
    "CheckpointStore",
    "Manifest",
    "SavedJob",
    "SavedSink",
    "ids_in",
    "listed",
]
