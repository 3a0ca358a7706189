"""The few calls to the operating system that durability rests on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

# IOV_MAX of Linux and macOS.
_MAX_VECTORS = 1024

# macOS has no fdatasync.
datasync = getattr(os, "fdatasync", os.fsync)


def sync_folder(folder: Path) -> None:
    """Makes the creation, renaming and removal of files in a folder durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_file(path: Path) -> None:
    """Makes a finished file and its name durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    sync_folder(path.parent)


def replace_file(path: Path, data: bytes) -> None:
    """Gives `path` the content `data`, durably: after a crash there is the old file or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_all(fd: int, buffers: Sequence[bytes | pa.Buffer], offset: int) -> int:
    """Writes the buffers one after the other at `offset` and returns where they end."""
    for start in range(0, len(buffers), _MAX_VECTORS):
        vectors: list[memoryview] = [memoryview(b) for b in buffers[start : start + _MAX_VECTORS]]
        while vectors:
            written = os.pwritev(fd, vectors, offset)
            offset += written
            # One call writes at most 2 GiB, and less when a signal or a full disk cuts it short.
            while vectors and written >= len(vectors[0]):
                written -= len(vectors.pop(0))
            if written:
                vectors[0] = vectors[0][written:]
    return offset


def reserve(fd: int, start: int, length: int) -> bool:
    """Allocates disk space past the end, so that syncs need not change the file's size. False if that cannot be had."""
    allocate = getattr(os, "posix_fallocate", None)
    if allocate is None:
        return False
    try:
        allocate(fd, start, length)
    except OSError:
        # Only a saving is lost here: if the disk is full, the write that follows says so.
        return False
    return True
