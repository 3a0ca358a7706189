"""One process at a time in a database folder."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from penstock.disk import make_folder, unwritable
from penstock.errors import fail


class FolderLock:
    """An exclusive claim on a database folder.

    The claim is the operating system's: it ends with the process, however that ends, so a lock file left behind by a crash
    stands in nobody's way.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        return self._fd is not None

    def acquire(self) -> None:
        """Takes the claim, or raises PSK-0005 if another holder has it. Taking it twice is an error as well."""
        if self._fd is not None:
            raise fail("PSK-0005", f"{self._path.parent} is already held by this database.")
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
            by = f"process {holder}" if holder.isdigit() else "another process"
            raise fail("PSK-0005", f"{self._path.parent} is in use by {by}.") from None
        except OSError:
            os.close(fd)
            raise
        self._fd = fd
        # The number only serves a message: a full disk must not keep a database shut.
        with suppress(OSError):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Gives the claim up. Without a claim it does nothing."""
        fd, self._fd = self._fd, None
        if fd is not None:
            # The file stays: removing it would let two processes lock two files of the same name.
            with suppress(OSError):
                os.ftruncate(fd, 0)
            os.close(fd)
