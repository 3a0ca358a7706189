"""The write-ahead log of changelog entries."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path

import google_crc32c

from penstock.checkpoint.entry import LAYOUT, StreamChangelogEntry, StreamChangeOp
from penstock.checkpoint.kinds import CheckpointErrorKind
from penstock.disk import datasync, make_folder, sync_folder, write_durably
from penstock.errors import PenstockError

_CRC = struct.Struct("<I")
_RECORD = LAYOUT.size + _CRC.size


class ChangelogWal:
    """A file of entries, each followed by its CRC32C. It holds the entries since the last checkpoint.

    A checkpoint appends a BARRIER, whose sequence is its id, before it is written, and empties the file afterwards. After a crash between
    the two, the entries before the barrier are known to be in the checkpoint.
    """

    def __init__(self, path: Path, *, sync: bool) -> None:
        self._path = path
        self._sync = sync
        self._fd: int | None = None
        self._end = 0

    def append(self, entry: StreamChangelogEntry, *, sync: bool = False) -> None:
        """Durable on return if the WAL is synchronous, or with `sync`."""
        packed = entry.to_bytes()
        record = packed + _CRC.pack(google_crc32c.value(packed))
        try:
            fd = self._open()
            try:
                written = os.pwrite(fd, record, self._end)
                if written != _RECORD:
                    raise OSError(f"only {written} of {_RECORD} bytes were written")
                if self._sync or sync:
                    datasync(fd)
            except OSError:
                # An entry that was refused must not be found later. If this fails too, the next entry overwrites it.
                with suppress(OSError):
                    os.ftruncate(fd, self._end)
                raise
            self._end += _RECORD
        except OSError as why:
            raise _failed(why) from why

    def entries(self, checkpoint_id: int) -> list[StreamChangelogEntry]:
        """The entries that are not in the checkpoint with this id. A torn record at the end is left out; damage before it is PSK-6016."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as why:
            raise _failed(why) from why
        found: list[StreamChangelogEntry] = []
        for entry in _sound(data, self._path):
            if entry.op == StreamChangeOp.BARRIER:
                if entry.sequence <= checkpoint_id:
                    found.clear()
            else:
                found.append(entry)
        return found

    def clear(self) -> None:
        """Removes all entries."""
        self.close()
        try:
            write_durably(self._path, b"")
        except PenstockError as why:
            raise CheckpointErrorKind.IO_ERROR.error(why.detail) from why

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> int:
        if self._fd is None:
            try:
                make_folder(self._path.parent)
            except PenstockError as why:
                raise CheckpointErrorKind.IO_ERROR.error(why.detail) from why
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                sync_folder(self._path.parent)
                # A damaged file is not opened: the next entry would overwrite what is whole.
                end = len(_sound(os.pread(fd, os.fstat(fd).st_size, 0), self._path)) * _RECORD
                os.ftruncate(fd, end)
            except BaseException:
                os.close(fd)
                raise
            self._fd, self._end = fd, end
        return self._fd


def _sound(data: bytes, path: Path) -> list[StreamChangelogEntry]:
    entries: list[StreamChangelogEntry] = []
    torn: int | None = None
    for start in range(0, len(data) - _RECORD + 1, _RECORD):
        packed = data[start : start + LAYOUT.size]
        if _CRC.unpack_from(data, start + LAYOUT.size)[0] != google_crc32c.value(packed):
            torn = start if torn is None else torn
        elif torn is not None:
            raise CheckpointErrorKind.IO_ERROR.error(
                f"{path}: CRC mismatch at {torn}",
                hint="Restore the file from a backup, or remove it to go on with the last checkpoint alone.",
            )
        else:
            entries.append(StreamChangelogEntry.from_bytes(packed))
    return entries


def _failed(why: OSError) -> PenstockError:
    return CheckpointErrorKind.IO_ERROR.error(str(why))
