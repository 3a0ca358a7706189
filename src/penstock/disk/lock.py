"""One user at a time of a folder."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from penstock.disk.whole import make_folder, unwritable
from penstock.errors import PenstockError, fail

LOCK = "lock"
"""The file in a folder that is locked."""


_held: WeakSet[FolderLock] = WeakSet()


def _forked() -> None:
    """A child has the file descriptors of its parent: it would keep the locks for as long as it lives."""
    for lock in [*_held]:
        lock._let_go()


os.register_at_fork(after_in_child=_forked)


def of_parent(folder: Path, owner: int) -> PenstockError:
    """The error of a forked child that uses what its parent has open."""
    return fail(
        "PSK-0005",
        f"{folder} is open in process {owner}, from which this one was forked.",
        hint="Use it in the process that has opened it, or start the other one with multiprocessing's method spawn.",
    )


class FolderLock:
    """An exclusive lock on a folder.

    The operating system holds the lock and releases it when the process ends for any reason, so a lock file left behind by a crash
    does no harm. A forked child does not hold it.
    """

    def __init__(self, folder: Path, name: str = LOCK) -> None:
        self._path = folder / name
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        return self._fd is not None

    def acquire(self) -> None:
        """Acquires the lock. Raises PSK-0005 if it is already held, even by this object."""
        if self._fd is not None:
            raise fail("PSK-0005", f"{self._path.parent} is already locked by its holder.")
        make_folder(self._path.parent)
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unwritable(self._path, error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip()
            os.close(fd)
            own = holder == str(os.getpid())
            by = "this process" if own else f"process {holder}" if holder.isdigit() else "another process"
            raise fail("PSK-0005", f"{self._path.parent} is in use by {by}.") from None
        except OSError as error:
            os.close(fd)
            raise unwritable(self._path, error) from error
        self._fd = fd
        _held.add(self)
        # The process id is only for a message: a full disk must not prevent opening.
        with suppress(OSError):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Releases the lock, if it is held."""
        fd = self._fd
        if fd is not None:
            # Keep the file: if it were removed, two processes could lock two files of the same name.
            with suppress(OSError):
                os.ftruncate(fd, 0)
            self._let_go()

    def _let_go(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
