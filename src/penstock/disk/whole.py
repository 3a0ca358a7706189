"""Atomic, durable file writes."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from penstock.disk.crash import crash_point
from penstock.errors import PenstockError, fail

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

TEMPORARY = ".tmp"
"""Suffix of a file that is being written. The next write overwrites one left behind by a crash."""


def write_durably(path: Path, content: bytes | Callable[[BinaryIO], object]) -> None:
    """Replaces the content of `path` atomically. `content` is bytes, or a function that writes to the file it receives.

    When this returns, the content is on disk. At any moment, and after a crash, `path` is the old file or the new one. Raises
    PSK-7004 if the write fails; the old file is then still there, unless only the final sync of the folder failed. There must be
    no concurrent writer of the same path.
    """
    beside = path.with_name(path.name + TEMPORARY)
    try:
        _write(beside, content)
        crash_point("file.written")
        os.replace(beside, path)
        crash_point("file.replaced")
        sync_folder(path.parent)
    except OSError as error:
        _remove(beside)
        raise unwritable(path, error) from error
    except BaseException:
        _remove(beside)
        raise


def make_folder(path: Path) -> None:
    """Durably creates a folder that only its owner can access, and any missing parents.

    An existing folder keeps its permissions. Raises PSK-7004.
    """
    missing = []
    parent = path
    try:
        while not parent.is_dir():
            missing.append(parent)
            parent = parent.parent
    except OSError as error:
        raise unwritable(path, error) from error
    for folder in reversed(missing):
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            sync_folder(folder.parent)
        except OSError as error:
            raise unwritable(folder, error) from error
        except ValueError as error:
            raise fail("PSK-7004", f"{str(path)!r} cannot be the name of a folder: {error}.") from error


def link(path: Path, target: Path) -> None:
    """Gives a file that never changes another name, or copies it, durably, where that is not possible. Raises OSError. The caller syncs the folder."""
    try:
        os.link(path, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(path, target)
        _sync(target)


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
    """The PSK-7004 error for a failed write."""
    hint = "Free some disk space and try again. The failed change was rolled back."
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
    # The original error matters more.
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
