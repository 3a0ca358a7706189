"""FILES: a sink that writes one file per epoch."""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

import pyarrow as pa

from penstock.catalog.declared import declared
from penstock.catalog.objects import Connector
from penstock.connect.access import Access
from penstock.connect.formats import Format, encoded, find_format
from penstock.connect.options import check_options, choice, flag, required
from penstock.connect.sinks import Capabilities, Opening, Sink, register_sink
from penstock.connect.types import INTERVALS, refuse_written
from penstock.disk import Witness, crash_point, sync_folder, unwritable, write_durably
from penstock.errors import PenstockError, fail
from penstock.serve.zset import inserted, weighted
from penstock.sql.files import FileOptions

_OPTIONS = ("path", "format", "mode", "changelog")
_MARK = ".penstock-sink"
_RENAMED = ".penstock-renamed"
_EPOCH = r"epoch-(\d{12,})\.(\w+)"
_PENDING = r"\.epoch-(\d{12,})\.(\w+)\.pending"


class FilesSink(Sink):
    """Exactly once: an epoch is written to a hidden file, and renamed to the file named after it when it is committed.

    The folder has a mark with the identity of the sink; a folder with the mark of another, or with epochs and no mark, is refused. `json` is one object per line.
    With `changelog = 'true'` rows include `__weight`; otherwise a stream with retractions is refused.
    """

    def __init__(self, folder: Path, format: Format, access: Access, *, changelog: bool) -> None:
        self.capabilities = Capabilities(changelog=changelog, exactly_once=True, prepares=True, takes_back=True)
        self._folder = folder
        assert format.encode is not None
        self._format = format
        self._encode = format.encode
        self._access = access
        self._changelog = changelog
        self._claimed = False
        self._lock: int | None = None
        self._renamed = Witness(folder / _RENAMED)
        """The last epoch whose file has its name: consumers may remove files, and one that is gone then was delivered."""

    def open(self, opening: Opening) -> int:
        nested = [f.name for f in opening.schema if pa.types.is_nested(f.type) and declared(f) != "variant"]
        name = self._format.name.upper()
        if nested and not self._format.nested:
            raise fail(
                "PSK-5002", f"{name} does not support the nested column {nested[0]!r}.", hint="Use PARQUET or JSON."
            )
        if not self._format.every_type:
            refuse_written(f"FILES: {name}", opening.schema, INTERVALS)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as why:
            raise fail("PSK-5002", f"FILES cannot use {self._folder}: {why.strerror}.") from why
        delivered = self._epochs(_EPOCH)
        self._claim(opening, has_epochs=bool(delivered))
        # Consumers may have removed files.
        return max([opening.committed, self._renamed.number, *delivered])

    def _claim(self, opening: Opening, *, has_epochs: bool) -> None:
        mark = self._folder / _MARK
        try:
            if not mark.exists() and (opening.committed or not has_epochs):
                self._mark(mark, opening.identity)
                # What another sink has left says nothing of this one.
                self._renamed.attest(min(opening.committed, self._renamed.number))
            found = mark.read_text().strip()
        except FileNotFoundError:
            raise self._foreign("has epochs of a sink that left no mark") from None
        except (OSError, ValueError) as why:
            raise fail("PSK-5002", f"FILES cannot use {mark}: {why}.") from why
        if found != opening.identity:
            raise self._foreign(f"belongs to another sink ({found})")
        self._hold(mark)
        self._claimed = True

    def _hold(self, mark: Path) -> None:
        """Locks the mark: two copies of a database, or a call that has not returned yet, would write the same files."""
        self._lock = os.open(mark, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._release()
            raise fail(
                "PSK-5015",
                f"FILES: another process, or an earlier call that has not returned, writes to {self._folder}.",
                hint="Only one copy of a database may deliver. Close the other one, or drop the sink here.",
            ) from None
        except OSError:
            # A file system without locks.
            self._release()

    def _release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def _mark(self, mark: Path, identity: str) -> None:
        beside = mark.with_name(f"{_MARK}-{identity}")
        write_durably(beside, f"{identity}\n".encode())
        try:
            # Of two sinks that are opened at once, one gets the folder.
            os.link(beside, mark)
        except FileExistsError:
            pass
        except OSError:
            # A file system without links.
            os.replace(beside, mark)
        beside.unlink(missing_ok=True)
        sync_folder(self._folder)

    def _foreign(self, why: str) -> PenstockError:
        return fail(
            "PSK-5015",
            f"FILES: {self._folder} {why}.",
            hint="Use another path. If the files in the folder are no longer needed, remove the folder.",
        )

    def write(self, epoch: int, lsn: int, table: pa.Table) -> None:
        rows = weighted(table) if self._changelog else inserted(table)
        self._check()
        try:
            with self._pending(epoch).open("wb") as out:
                self._encode(rows, out, FileOptions())
                out.flush()
                os.fsync(out.fileno())
        except OSError as why:
            raise unwritable(self._pending(epoch), why) from why

    def pre_commit(self, epoch: int) -> None:
        self._sync()

    def commit(self, epoch: int) -> None:
        waiting = [e for e in self._epochs(_PENDING) if e <= epoch]
        for one in waiting:
            try:
                os.replace(self._pending(one), self._committed(one))
            except OSError as why:
                raise unwritable(self._pending(one), why) from why
            crash_point("files.renamed")
        if waiting:
            self._sync()
            self._renamed.attest(max(waiting[-1], self._renamed.number))

    def has(self, epoch: int) -> bool:
        return epoch <= self._renamed.number or self._committed(epoch).exists()

    def rollback(self, epoch: int) -> None:
        for one in self._epochs(_PENDING):
            if one >= epoch:
                self._pending(one).unlink(missing_ok=True)

    def take_back(self, after: int, up_to: int) -> None:
        for pattern, name in ((_PENDING, self._pending), (_EPOCH, self._committed)):
            for one in self._epochs(pattern):
                if after < one <= up_to:
                    try:
                        name(one).unlink(missing_ok=True)
                    except OSError as why:
                        raise unwritable(name(one), why) from why
                    crash_point("files.taken_back")
        self._renamed.attest(min(after, self._renamed.number))
        self._sync()

    def close(self) -> None:
        """Gives up a folder in which nothing was delivered, so that another sink can use it."""
        try:
            if self._claimed and not self._epochs(_EPOCH) and not self._epochs(_PENDING):
                (self._folder / _MARK).unlink(missing_ok=True)
                (self._folder / _RENAMED).unlink(missing_ok=True)
        finally:
            self._claimed = False
            self._renamed.close()
            self._release()

    def _check(self) -> None:
        # The folder may have been replaced by a link since the sink was created.
        self._access.check("FILES", [self._folder])

    def _epochs(self, pattern: str) -> list[int]:
        self._check()
        try:
            names = os.listdir(self._folder)
        except OSError as why:
            raise fail("PSK-5002", f"FILES cannot use {self._folder}: {why.strerror}.") from why
        matches = (re.fullmatch(pattern, name) for name in names)
        return sorted(int(m[1]) for m in matches if m is not None and m[2] in encoded())

    def _pending(self, epoch: int) -> Path:
        return self._folder / f".epoch-{epoch:012d}.{self._format.name}.pending"

    def _committed(self, epoch: int) -> Path:
        return self._folder / f"epoch-{epoch:012d}.{self._format.name}"

    def _sync(self) -> None:
        try:
            sync_folder(self._folder)
        except OSError as why:
            raise unwritable(self._folder, why) from why


@register_sink("FILES", _OPTIONS, exactly_once=True)
def _make(connector: Connector, access: Access) -> FilesSink:
    options = connector.options
    check_options("FILES", options, _OPTIONS)
    check_options("FILES FORMAT", connector.format_options, ())
    if connector.format and "format" in options and connector.format.lower() != options["format"].lower():
        raise fail("PSK-1011", f"FILES: FORMAT {connector.format} and format = {options['format']!r} differ.")
    choice("FILES", "mode", options.get("mode", "append"), ("append",))
    format = choice("FILES", "format", connector.format or options.get("format", "parquet"), encoded())
    changelog = flag("FILES", "changelog", options.get("changelog", "false"))
    folder = access.path("FILES", "path", required("FILES", options, "path"))
    return FilesSink(folder, find_format(format), access, changelog=changelog)
