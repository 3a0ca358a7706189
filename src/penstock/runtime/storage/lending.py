"""Files of a checkpoint under names of their own, for as long as somebody reads them: it may be pruned meanwhile, by any process."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from penstock.disk import link

_LENT, _LOCK = ".lent-", ".lock"


@contextmanager
def lent(folder: Path, id: int, names: Iterable[str]) -> Iterator[Path]:
    """A folder that has some files of checkpoint `id` in `folder`. Raises FileNotFoundError if one is gone, OSError."""
    made = folder / f"{id}{_LENT}{uuid4().hex}"
    fd = _locked(made.with_name(made.name + _LOCK))
    try:
        for name in names:
            target = made / name
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            link(folder / str(id) / name, target)
        yield made
    finally:
        _remove(made)
        os.close(fd)


def _locked(path: Path) -> int:
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            if os.stat(path).st_ino == os.fstat(fd).st_ino:
                return fd
        except FileNotFoundError:
            pass
        # It was removed before it was locked.
        os.close(fd)


def remove_left(folder: Path) -> None:
    """Removes what processes have left that were killed while they read."""
    for lock in folder.glob(f"*{_LENT}*{_LOCK}"):
        with suppress(OSError):
            fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(lock.with_name(lock.name.removesuffix(_LOCK)))
            finally:
                os.close(fd)


def _remove(made: Path) -> None:
    """The lock last: without it nobody would look for the folder again."""
    shutil.rmtree(made, ignore_errors=True)
    if not made.exists():
        made.with_name(made.name + _LOCK).unlink(missing_ok=True)


__all__ = ["lent", "remove_left"]
