"""Files that grow at their end."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pyarrow as pa

# IOV_MAX of Linux and macOS.
_MAX_VECTORS = 1024

# macOS has no fdatasync.
datasync = getattr(os, "fdatasync", os.fsync)


def write_all(fd: int, buffers: Sequence[bytes | pa.Buffer], offset: int) -> int:
    """Writes the buffers one after the other at `offset` and returns where they end."""
    for start in range(0, len(buffers), _MAX_VECTORS):
        some = buffers[start : start + _MAX_VECTORS]
        end = offset + sum([len(b) for b in some])
        offset += os.pwritev(fd, some, offset)
        if offset < end:
            _write_rest(fd, some, end, offset)
        offset = end
    return offset


def _write_rest(fd: int, buffers: Sequence[bytes | pa.Buffer], end: int, offset: int) -> None:
    """Goes on after a write that was cut short: one call writes at most 2 GiB, and less if a signal or a full disk comes between."""
    left = end - offset
    vectors: list[memoryview] = []
    for view in (memoryview(b) for b in reversed(buffers)):
        vectors.insert(0, view[-left:] if left < len(view) else view)
        left -= len(vectors[0])
        if not left:
            break
    while vectors:
        written = os.pwritev(fd, vectors, offset)
        offset += written
        while vectors and written >= len(vectors[0]):
            written -= len(vectors.pop(0))
        if written:
            vectors[0] = vectors[0][written:]


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
