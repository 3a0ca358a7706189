"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from penstock.errors import PenstockError, fail

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

TEMPORARY = ".tmp"
"""How the name of a file ends that is being written. One that a crash left behind is overwritten by the next write."""


def write_durably(path: Path, content: bytes | Callable[[BinaryIO], object]) -> None:
    """Gives `path` this content: bytes, or what a function writes to the file that it is given.

    When it returns, the content is on disk; at any moment, and after a crash, there is the old file or the new one. Raises
    PSK-7004 if the disk refuses. The old file is still there then, unless only the last step failed, the sync of the folder. Nobody else may write the
    same path at the same time.
    """
    beside = path.with_name(path.name + TEMPORARY)
    try:
        _write(beside, content)
        os.replace(beside, path)
        sync_folder(path.parent)
    except OSError as error:
        _remove(beside)
        raise unwritable(path, error) from error
    except BaseException:
        _remove(beside)
        raise


def make_folder(path: Path) -> None:
    """Makes a folder that only its owner may enter, durably, and its parents where they are missing.

    A folder that exists keeps its permissions. Raises PSK-7004.
    """
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            sync_folder(folder.parent)
        except OSError as error:
            raise unwritable(folder, error) from error


def sync_file(path: Path) -> None:
    """Makes a finished file and its name durable. Raises PSK-7004."""
    try:
        _sync(path)
        sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error


def sync_folder(folder: Path) -> None:
    """Makes the creation, renaming and removal of files in a folder durable. Raises OSError."""
    _sync(folder)


def unwritable(path: Path, error: OSError) -> PenstockError:
    """PSK-7004: which file could not be written, why, and what helps."""
    hint = "Make room on the disk and try again; nothing of the failed change was kept."
    return fail(
        "PSK-7004",
        f"{path} could not be written: {error.strerror or error}.",
        hint=hint if error.errno in _FULL else None,
    )


def _write(path: Path, content: bytes | Callable[[BinaryIO], object]) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        if callable(content):
            content(file)
        else:
            file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _remove(path: Path) -> None:
    # The error that led here says more.
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
