"""Private temporary folders that do not outlive their process for long.

A folder is locked as long as the process that created it lives, or one that inherited the lock. `sweep` removes the folders of
killed processes: those that have our marker file and are not locked.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Container
from contextlib import suppress
from pathlib import Path

_PREFIX = "penstock-"
_MARK = ".penstock-scratch"


class Scratch:
    """A new private folder in the temporary folder. `remove` deletes it; after a crash, the next `sweep` does."""

    def __init__(self, kind: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-"))
        self.lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        """A file descriptor. A child process that inherits it prevents `sweep` from removing the folder."""
        # The marker comes last, so a marked folder that is not locked has no owner. Without a lock there is no marker, and the folder is never swept.
        with suppress(OSError):
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (self.path / _MARK).touch()

    def clear(self, keep: Container[str] = ()) -> None:
        """Deletes everything inside except the named files."""
        _clear(self.path, keep)

    def remove(self) -> None:
        """Deletes the folder. Calling it again does nothing."""
        if self.lock >= 0:
            _remove(self.path)
            os.close(self.lock)
            self.lock = -1


def sweep() -> None:
    """Removes the folders of killed processes of this user. A folder that cannot be removed now is left for the next sweep."""
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                with suppress(OSError):
                    _sweep(Path(entry.path))


def _sweep(path: Path) -> None:
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(lock).st_uid == os.geteuid() and stat.S_ISREG((path / _MARK).lstat().st_mode):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)
    finally:
        os.close(lock)


def _remove(path: Path) -> None:
    _clear(path, ())
    with suppress(OSError):
        # If something could not be deleted, keep the marker for the next sweep.
        if [p.name for p in path.iterdir()] == [_MARK]:
            (path / _MARK).unlink()
        path.rmdir()


def _clear(path: Path, keep: Container[str]) -> None:
    with suppress(OSError):
        for child in path.iterdir():
            if child.name == _MARK or child.name in keep:
                continue
            if child.is_dir() and not child.is_symlink():
                shutil.rmtree(child, ignore_errors=True)
            else:
                with suppress(OSError):
                    child.unlink()
