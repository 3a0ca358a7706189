"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_durably(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """What `write` puts out stands at `path`, on disk, when this returns; until then, and on an error, what was there before does."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as out:
            write(out)
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in `folder` durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
